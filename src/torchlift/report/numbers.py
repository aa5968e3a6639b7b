"""Numbers for people: 70,346 · 1.24 M · 281 kB · 3.2 ms · 0.741 ± 0.004 · +0.012 [0.003, 0.021]."""

import math
from collections.abc import Sequence
from typing import Literal

Format = Literal["auto", "text", "count", "bytes", "seconds", "ms", "percent", "flops", "signed"]

MINUS, GAP, MISSING = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}", "–"


def show(value: str | float | None, form: Format = "auto") -> str:
    """One value in the given format; text stays as it is, what is missing or NaN becomes a dash."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else MINUS + "∞"
    return _FORMATS[form](value)


def fixed(value: float, decimals: int, *, signed: bool = False) -> str:
    """Thousands separated, a true minus sign, never a negative zero."""
    text = f"{abs(value):,.{decimals}f}"
    zero = not text.strip("0.,")
    sign = "" if zero else MINUS if value < 0 else "+" if signed else ""
    return sign + text


def significant(value: float, digits: int = 4) -> str:
    """``digits`` significant digits; whole numbers stay whole, the tiny and the huge go scientific."""
    value = float(f"{value:.12g}")
    if value == int(value) and abs(value) < 1e6:
        return fixed(value, 0)
    exponent = math.floor(math.log10(abs(value)))
    if not -4 <= exponent < 7:
        return _scientific(f"{value:.{digits - 2}e}")
    return fixed(value, max(0, digits - 1 - exponent))


def shortest_text(value: float) -> str:
    """As few digits as the number has: 0.001 · 20 · 5,000 · 1e−6."""
    text = f"{value:.12g}" if 1e-4 <= abs(value) < 1e6 else f"{value:g}"
    return _scientific(text) if "e" in text else fixed(value, len(text.partition(".")[2]))


def _scientific(text: str) -> str:
    mantissa, power = text.split("e")
    return f"{mantissa}e{int(power)}".replace("-", MINUS)


def si(value: float, unit: str = "", digits: int = 3) -> str:
    """1,240,000 → 1.24 M: three significant digits and a decimal prefix."""
    scaled, prefixes = value, ["", "k", "M", "G", "T", "P", "E"]
    while abs(scaled) >= 999.5 and len(prefixes) > 1:
        scaled, prefixes = scaled / 1000, prefixes[1:]
    whole = scaled == int(scaled) and prefixes[0] == ""
    exponent = max(0, math.floor(math.log10(abs(scaled)))) if scaled else 0
    text = fixed(scaled, 0 if whole else max(0, min(digits, digits - 1 - exponent)))
    return f"{text}{GAP}{prefixes[0]}{unit}".rstrip(GAP)


def readable_count(value: float) -> str:
    """Every digit below a million, then a prefix."""
    return fixed(value, 0) if abs(value) < 1e6 and value == int(value) else si(value)


def duration(seconds: float) -> str:
    """3.2 ms · 12.3 s · 3 min 20 s · 2 h 05 min."""
    if abs(seconds) < 60:
        small = abs(seconds) < 1
        text = significant(seconds * 1000 if small else seconds, 2 if small and seconds < 0.1 else 3)
        return f"{text}{GAP}{'ms' if small else 's'}"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}{GAP}min {rest:02d}{GAP}s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}{GAP}h {minutes:02d}{GAP}min"


def wilson(share: float, samples: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a share (Wilson 1927): (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)."""
    n, p = samples, share
    middle, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    return max(0.0, (middle - half) / (1 + z**2 / n)), min(1.0, (middle + half) / (1 + z**2 / n))


def decimals_for(spread: float) -> int:
    """How many decimals a spread deserves: its first digit, or two where the first is a 1."""
    if not math.isfinite(spread) or spread <= 0:
        return 4
    exponent = math.floor(math.log10(spread))
    return max(0, min(8, -exponent + (spread / 10**exponent < 2)))


def plus_minus(
    mean: float, spread: float | None, *, decimals: int | None = None, signed: bool = False
) -> str:
    """0.741 ± 0.004, both to the digits the spread deserves unless told otherwise."""
    if spread is None or not math.isfinite(spread) or not math.isfinite(mean):
        return show(mean, "signed" if signed else "auto")
    decimals = decimals_for(spread) if decimals is None else decimals
    return f"{fixed(mean, decimals, signed=signed)} ± {fixed(spread, decimals)}"


def interval(mean: float, low: float, high: float, *, signed: bool = False) -> str:
    """+0.0120 [0.0031, 0.0209]: a digit more than a spread, so that an end near 0 shows its sign."""
    if not all(map(math.isfinite, (mean, low, high))):
        return show(mean, "signed" if signed else "auto")
    decimals = decimals_for((high - low) / 20)
    return f"{fixed(mean, decimals, signed=signed)} [{fixed(low, decimals)}, {fixed(high, decimals)}]"


def aligned_numbers(values: Sequence[float]) -> list[str]:
    """A column or an axis of numbers with as many decimals as tell its values apart, at most six."""
    finite = [value for value in values if math.isfinite(value)]
    top = max(map(abs, finite), default=0.0)
    floor = min((abs(value) for value in finite if value), default=1.0)
    if top >= 1e6 or (0 < top < 1e-3) or floor < 1e-6:
        return [show(value) for value in values]
    decimals = next(d for d in range(7) if d == 6 or all(_is_exact(value, d, top) for value in finite))
    return [fixed(value, decimals) if math.isfinite(value) else show(value) for value in values]


def _is_exact(value: float, decimals: int, top: float) -> bool:
    return abs(value - round(value, decimals)) <= 1e-4 * min(top, abs(value) or top)


def _signed(value: float) -> str:
    text = significant(value)
    return text if value <= 0 else "+" + text


_FORMATS = {
    "auto": significant,
    "text": significant,
    "count": readable_count,
    "bytes": lambda value: si(value, "B"),
    "seconds": duration,
    "ms": lambda value: duration(value / 1000),
    "percent": lambda value: f"{significant(100 * value, 3)}{GAP}%",
    "flops": lambda value: si(value, "FLOP"),
    "signed": _signed,
}
