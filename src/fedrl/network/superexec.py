"""The agent's SuperExec: it runs the ClientApp that is installed here, and nothing else.

Flower's own SuperExec installs the app that the server ships and imports its code. This one ignores
that app, takes only messages for a ClientApp, and answers each in a fork of a process that has the
ClientApp in memory, because importing it takes more than a second.

`python -m fedrl.network.superexec FOLDER` is what `fedrl agent` starts.
"""

import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import httpx
from flwr.app import Message
from flwr.app.error import Error
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedrl.errors import FedrlError
from fedrl.network.client_app import app
from fedrl.network.processes import leave_with
from fedrl.network.supernode import Runtime

# Seconds between looks for a message.
POLL = 0.2


def main(folder: Path) -> None:
    """Fork for every message until the process that started this one is gone."""
    # The kernel reaps forks.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    print("ready", flush=True)
    while os.getppid() == parent:
        # A SuperNode that is starting, or being started again, is not there yet.
        with suppress(OSError, httpx.HTTPError):
            _answer_messages(Runtime.read(folder), parent)
        time.sleep(POLL)


def _answer_messages(runtime: Runtime, parent: int) -> None:
    """For as long as the SuperNode is there."""
    signed = SuperExecAuthHttpInterceptor(
        master_secret=runtime.secret, protected_methods=["/flwr.proto.Runtime/AcquireTask"]
    )
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    with _connected(runtime, "SuperExec", signed) as client:
        while os.getppid() == parent:
            token = client.AcquireTask(wanted).token
            # No threads here, so that a fork is whole.
            if token and os.fork() == 0:
                _answer_and_exit(runtime, token)
            time.sleep(POLL)


def _connected(
    runtime: Runtime, name: str, interceptor: ProtobufClientInterceptor
) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        runtime.address,
        insecure=False,
        root_certificates=runtime.authority,
        interceptors=[RuntimeVersionHttpInterceptor(component_name=name), interceptor],
    )


def _answer_and_exit(runtime: Runtime, token: str) -> NoReturn:
    """In a fork: answer one message."""
    code = 1
    try:
        leave_with(os.getppid())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with _connected(runtime, TaskType.CLIENT_APP, RuntimeTokenHttpInterceptor(token)) as client:
            _answer(client)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _answer(client: RuntimeHttpClient) -> None:
    """What Flower's ClientApp process does, without installing and loading the shipped app."""
    HeartbeatSender(make_task_heartbeat_fn_http(client)).start()
    message, context, _, _shipped = pull_task_input(client)
    status, details = SubStatus.COMPLETED, ""
    try:
        reply = app(message=message, context=context)
    except Exception as error:
        traceback.print_exc()
        status = SubStatus.FAILED
        details = str(error) if isinstance(error, FedrlError) else repr(error)
        failure = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=details)
        reply = Message(failure, reply_to=message)
    push_message(client, reply, context)
    push_task_output(client, context, status, details)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
