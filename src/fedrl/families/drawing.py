"""Pictures of single states, as RGB arrays; lengths are true to scale."""

from math import cos, sin

import numpy as np

from fedrl.files import Array

Point = tuple[float, float]

BACKGROUND = "#FAFAF7"
LINE = "#C9C9C4"
DARK = "#3B3B3B"
BLUE = "#0072B2"
ORANGE = "#D55E00"

OVERSAMPLING = 4  # Pillow draws hard edges; shrinking the picture softens them


class Canvas:
    """Shapes placed in metres, y upwards."""

    def __init__(self, width: int, height: int, metres: float, origin: Point) -> None:
        """`metres` wide; `origin` is where (0, 0) lies, in shares of width and height from the top.

        Sizes are in pixels of the finished picture.
        """
        from PIL import Image, ImageDraw

        self._scale = OVERSAMPLING * width / metres
        self._origin = (OVERSAMPLING * width * origin[0], OVERSAMPLING * height * origin[1])
        self._image = Image.new("RGB", (OVERSAMPLING * width, OVERSAMPLING * height), BACKGROUND)
        self._draw = ImageDraw.Draw(self._image)

    def _at(self, point: Point) -> Point:
        return self._origin[0] + self._scale * point[0], self._origin[1] - self._scale * point[1]

    def disc(self, centre: Point, radius: float, colour: str) -> None:
        self._draw.circle(self._at(centre), self._scale * radius, fill=colour)

    def rod(self, start: Point, end: Point, thickness: float, colour: str) -> None:
        """A line with round ends."""
        width = max(1, round(self._scale * thickness))
        self._draw.line([self._at(start), self._at(end)], fill=colour, width=width)
        for point in (start, end):
            self.disc(point, thickness / 2, colour)

    def box(self, centre: Point, width: float, height: float, colour: str) -> None:
        """A rectangle with round corners."""
        x, y = centre
        top_left = self._at((x - width / 2, y + height / 2))
        bottom_right = self._at((x + width / 2, y - height / 2))
        self._draw.rounded_rectangle(
            [top_left, bottom_right], radius=0.15 * self._scale * height, fill=colour
        )

    def picture(self) -> Array:
        return np.asarray(self._image.reduce(OVERSAMPLING), np.uint8)


def draw_cart_pole(position: float, angle: float, length: float) -> Array:
    """The cart on its track between the two posts that end an episode, 600 x 400 pixels."""
    # One scale for all usual poles, so that pictures can be compared.
    metres = max(5.4, 2 * length)
    canvas = Canvas(600, 400, metres, origin=(0.5, 0.8))
    canvas.rod((-metres, -0.2), (metres, -0.2), 0.02, LINE)
    for post in (-2.4, 2.4):
        canvas.rod((post, -0.2), (post, 0.1), 0.03, LINE)
    for wheel in (-0.14, 0.14):
        canvas.disc((position + wheel, -0.13), 0.07, DARK)
    canvas.box((position, 0), 0.52, 0.24, BLUE)
    hinge = (position, 0.08)
    tip = (hinge[0] + length * sin(angle), hinge[1] + length * cos(angle))
    canvas.rod(hinge, tip, 0.07, ORANGE)
    canvas.disc(hinge, 0.02, BACKGROUND)
    return canvas.picture()


def draw_acrobot(angle_1: float, angle_2: float, mass: float, length: float) -> Array:
    """Both links, the first as thick as it is heavy, 500 x 500 pixels."""
    second_link = 1.0
    reach = max(2.7, length + second_link + 0.2)
    canvas = Canvas(500, 500, 2 * reach, origin=(0.5, 0.5))
    # The episode ends when the tip is above this line; for other lengths there is no such line.
    if abs(length - 1) < 1e-6:
        for dash in range(-30, 31):
            canvas.rod((0.2 * dash - 0.04, 1), (0.2 * dash + 0.04, 1), 0.02, LINE)
    elbow = (length * sin(angle_1), -length * cos(angle_1))
    both = angle_1 + angle_2
    tip = (elbow[0] + second_link * sin(both), elbow[1] - second_link * cos(both))
    canvas.rod((0, 0), elbow, min(0.18 * mass, 0.6), BLUE)
    canvas.rod(elbow, tip, 0.18, ORANGE)
    for joint in ((0.0, 0.0), elbow):
        canvas.disc(joint, 0.075, DARK)
        canvas.disc(joint, 0.03, BACKGROUND)
    return canvas.picture()
