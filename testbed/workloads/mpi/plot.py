"""Draws what heat.c and heat.py compute, with axes, isotherms and the ranks' shares, as SVG.     python3 plot.py [PICTURE [DRAWING]]

By default it reads heat.pgm and writes heat.svg. It needs nothing but Python.
"""
import base64
import re
import struct
import sys
import zlib

SIDE = 480  # Of the plate in the drawing. All lengths are in the units of SVG.
LEFT, TOP, WIDTH, HEIGHT = 80, 100, 720, 650
BAR, BAR_WIDTH = LEFT + SIDE + 40, 22
BOTTOM, MIDDLE = TOP + SIDE, TOP + SIDE // 2
ISOTHERMS = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
# From cold to hot, ever darker: right in grey, too, and for colour-blind readers (ColorBrewer's YlOrRd).
COLOURS = [
    (255, 255, 204), (255, 237, 160), (254, 217, 118), (254, 178, 76), (253, 141, 60), (252, 78, 42), (227, 26, 28), (189, 0, 38), (128, 0, 38)
]
TURNED = 'text-anchor="middle" transform="rotate(-90 {0} {1})"'


def read(path):
    """Returns the remark of a picture, and its lines of temperatures from 0 to 1."""
    with open(path, encoding="ascii") as file:
        content = file.read()
    remark = " ".join(re.findall("# *(.*)", content))
    kind, *words = re.sub("#.*", "", content).split() or [""]
    if kind != "P2" or len(words) < 3 or not all(word.isdigit() for word in words):
        sys.exit(f"{path}: not a picture of the form P2")
    width, height, most, *values = map(int, words)
    if not values or len(values) != width * height:
        sys.exit(f"{path}: {len(values)} points in place of {width} × {height}")
    temperatures = [value / most for value in values]
    return remark, [temperatures[start : start + width] for start in range(0, len(values), width)]


def colour(temperature):
    """Returns red, green and blue of a temperature."""
    place = temperature * (len(COLOURS) - 1)
    index = min(int(place), len(COLOURS) - 2)
    return bytes(round(low + (high - low) * (place - index)) for low, high in zip(COLOURS[index], COLOURS[index + 1]))


def image(x, width, lines):
    """Returns an image in which each temperature is a rectangle."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 2, 0, 0, 0)
    dots = b"".join(b"\0" + b"".join(map(colour, line)) for line in lines)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(dots)) + chunk(b"IEND", b"")
    place = f'x="{x}" y="{TOP}" width="{width}" height="{SIDE}"'
    data = base64.b64encode(png).decode()
    return (
        f'<image {place} preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>\n'
        f'<rect {place} fill="none" stroke="black"/>'
    )


def isotherm(lines, level):
    """Returns the line along which the temperature is `level`: through each square of four points, from side to side."""
    path = ""
    scale = SIDE / len(lines)
    for y in range(len(lines) - 1):
        for x in range(len(lines[0]) - 1):
            corners = [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]
            cuts = []
            for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1]):
                here, there = lines[y0][x0] - level, lines[y1][x1] - level
                if (here < 0) != (there < 0):
                    share = here / (here - there)
                    cut_x, cut_y = x0 + share * (x1 - x0), y0 + share * (y1 - y0)
                    cuts.append(f"{LEFT + (cut_x + 0.5) * scale:.1f} {TOP + (cut_y + 0.5) * scale:.1f}")
            path += "".join(f"M{start}L{end}" for start, end in zip(cuts[::2], cuts[1::2]))
    return f'<path class="isotherm" d="{path}" fill="none" stroke="#333"/>'


def text(x, y, words, more=""):
    return f'<text x="{x:g}" y="{y:g}" {more}>{words}</text>'


def axes(points):
    """Returns both axes with their labels, and the bar of colours."""
    parts = []
    for point in range(0, points, max(points // 4, 1)):
        place = (point + 0.5) * SIDE / points
        parts.append(f'<path d="M{LEFT + place:g} {BOTTOM}v6M{LEFT} {BOTTOM - place:g}h-6" stroke="black"/>')
        parts.append(text(LEFT + place, BOTTOM + 22, point, 'text-anchor="middle"'))
        parts.append(text(LEFT - 10, BOTTOM - place + 5, point, 'text-anchor="end"'))
    parts.append(text(LEFT + SIDE / 2, BOTTOM + 48, "x (grid points)", 'text-anchor="middle"'))
    parts.append(text(28, MIDDLE, "y (grid points)", TURNED.format(28, MIDDLE)))
    parts.append(image(BAR, BAR_WIDTH, [[1 - place / 255] for place in range(256)]))
    for level in [0, *ISOTHERMS, 1]:
        y = BOTTOM - level * SIDE
        parts.append(f'<path d="M{BAR} {y:g}h{BAR_WIDTH + 6}" stroke="#333"/>' + text(BAR + BAR_WIDTH + 10, y + 5, level))
    label = BAR + BAR_WIDTH + 62
    parts.append(text(label, MIDDLE, "temperature (1 = that of the hot edge)", TURNED.format(label, MIDDLE)))
    return parts


def drawing(remark, lines):
    """Returns the text of the drawing."""
    points = len(lines)
    ranks = re.search("on ([0-9]+) ranks", remark)
    ranks = int(ranks[1]) if ranks else 1
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 32, "Temperature of a plate whose upper edge is hot", 'font-size="20"'),
        text(LEFT, 56, f"{len(lines[0])} × {points} points, {remark}".rstrip(", "), 'fill="#555"'),
        f'<path d="M{LEFT} 79h30" stroke="#333"/>' + text(LEFT + 38, 84, "isotherm"),
        image(LEFT, SIDE, lines),
        *(isotherm(lines, level) for level in ISOTHERMS),
        *axes(points),
    ]
    if ranks > 1:
        borders = "".join(f"M{LEFT} {TOP + rank * SIDE / ranks:g}h{SIDE}" for rank in range(1, ranks))
        dashed = 'stroke="#06c" stroke-dasharray="6 4"'
        parts.append(f'<path class="borders" d="{borders}" {dashed}/>')
        parts.append(f'<path d="M{LEFT + 140} 79h30" {dashed}/>' + text(LEFT + 178, 84, "border between ranks"))
    return "\n".join([*parts, "</svg>\n"])


arguments = sys.argv[1:3]
picture, target = arguments + ["heat.pgm", "heat.svg"][len(arguments) :]
drawn = drawing(*read(picture))
with open(target, "w", encoding="utf-8") as file:
    file.write(drawn)
print(f"drawn in {target}")
