"""Formulas of the documentation become MathML; code and money do not."""

import markdown
import pytest
from scripts.mathml_hook import Formulas


def html(text):
    return markdown.markdown(text, extensions=["fenced_code", "tables", Formulas()])


def test_formulas_become_mathml():
    assert html("so $x_1$ is") == (
        '<p>so <math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><msub>'
        "<mi>x</mi><mn>1</mn></msub></mrow></math> is</p>"
    )
    alone = html("so\n\n$$\nQ_a *\nQ_b * c\n$$\n\nis")
    assert alone.count("<math") == alone.count('display="block"') == 1
    assert "<em>" not in alone


def test_a_formula_may_stand_in_a_table():
    assert html("| a |\n|---|\n| $x$ and $y$ |").count("<math") == 2


@pytest.mark.parametrize(
    "text",
    [
        "`$x$` and ``$$y$$``",
        "```sh\necho $HOME $PATH\n```",
        "    echo $HOME $PATH",
        "5 $ and 6 $",
        "$5 or $6",
        r"\$x\$",
    ],
)
def test_everything_else_is_left_alone(text):
    assert "<math" not in html(text)
