"""What was trained, on what and with what: the facts of ``run.json`` and ``status.json`` as readable text."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from vicinal.run_directory import config_of

Fact = tuple[str, str]  # what it is, what it says


def readable(value: Any) -> str:
    """Any JSON value in one line, descriptions of objects as the call that makes them.

    >>> readable({"class": "TripletLoss", "margin": 0.2, "squared": True})
    'TripletLoss(margin=0.2, squared=yes)'
    >>> readable({"train": {"records": 6000, "classes": 240}, "seed": None})
    'train (records 6000, classes 240), seed none'
    >>> readable([64, 128.0, 1e-05])
    '64, 128, 1e-05'
    """
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}" if abs(value) < 1e6 else f"{value:.6g}"
        case {"class": str(name), **arguments}:
            return f"{name}({', '.join(f'{key}={readable(item)}' for key, item in arguments.items())})"
        case dict():
            return ", ".join(
                f"{key} ({readable(item)})"
                if isinstance(item, dict) and "class" not in item
                else f"{key} {readable(item)}"
                for key, item in value.items()
            )
        case list() | tuple():
            return ", ".join(readable(item) for item in value)
        case _:
            return str(value)


def duration(seconds: float) -> str:
    """
    >>> duration(7.23), duration(133), duration(7265)
    ('7.2 s', '2 min 13 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def moment(text: str) -> str:
    """A point in time as a person writes it; what is not written as ISO 8601 stays as it is.

    >>> moment("2025-01-31T12:00:07+00:00"), moment("yesterday")
    ('2025-01-31 12:00 UTC', 'yesterday')
    """
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return text


def heading(info: Mapping[str, Any]) -> tuple[str, str]:
    """What the page is about: the data's name, and the experiment in a few words.

    >>> slots = {"loss": {"name": "n_pair"}, "method": {"name": "hdml"}, "model": {"name": "resnet50"}}
    >>> heading({"data": {"name": "birds"}, "config": {"preset": "cub", "slots": slots}})
    ('birds', 'hdml with n_pair on resnet50, preset cub')
    """
    config = config_of(info)
    slots = config["slots"] if isinstance(config["slots"], dict) else {}
    named = {name: _name(slots.get(name)) for name in ("method", "loss", "model")}
    words = [text for text in (named["method"] if named["method"] != "plain" else "", named["loss"]) if text]
    text = " with ".join(words) + (f" on {named['model']}" if words and named["model"] else "")
    preset = f"preset {config['preset']}" if config.get("preset") else ""
    about = ", ".join(filter(None, (text, preset))) or str(config.get("title") or "")
    return str(_part(info, "data").get("name") or info.get("name") or "A run"), about


def _name(slot: Any) -> str:
    return str(slot.get("name") or slot.get("class") or "") if isinstance(slot, Mapping) else ""


def settings(info: Mapping[str, Any]) -> list[tuple[str, list[Fact]]]:
    """Every resolved setting, by slot; those without a slot first."""
    slots = config_of(info)["slots"]
    if not isinstance(slots, dict):
        return []
    groups: dict[str, list[Fact]] = {"": []}
    for name, value in slots.items():
        if isinstance(value, dict):
            groups[name] = [(key, readable(part)) for key, part in value.items()]
        else:
            groups[""].append((name, readable(value)))
    return [(name, facts) for name, facts in groups.items() if facts]


def data(info: Mapping[str, Any]) -> list[Fact]:
    """The data set and how many examples and classes each part has."""
    about = _part(info, "data")
    facts = [(name, readable(about[name])) for name in ("name", "description", "fingerprint") if about.get(name)]
    counts = about.get("counts") or {}
    if not isinstance(counts, Mapping):
        return [*facts, ("counts", readable(counts))]
    return [*facts, *((name, _count(count)) for name, count in counts.items())]


def notes(info: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """What the run noted about its data and results; the results repeat what was known before them."""
    return [str(note) for note in results.get("notes") or _part(info, "data").get("notes") or []]


def environment(info: Mapping[str, Any]) -> list[Fact]:
    """Where and with what it ran: enough to run it again."""
    facts = [(name, readable(info[name])) for name in ("name", "commit", "vicinal") if info.get(name) is not None]
    if info.get("created"):
        facts.append(("created", moment(str(info["created"]))))
    for name in ("hardware", "versions"):
        part = info.get(name)
        if isinstance(part, Mapping):
            facts += [(key, readable(value)) for key, value in part.items() if value is not None]
        elif part is not None:
            facts.append((name, readable(part)))
    return facts


def state(status: Mapping[str, Any]) -> str:
    """How far the run came, in a sentence.

    >>> state({"state": "interrupted", "epoch": 3, "step": 180, "seconds": 61.0})
    'Interrupted in epoch 3 after 180 steps and 1 min 1 s; what follows is what it had written by then.'
    >>> state({"state": "finished", "epoch": 9, "step": 600, "seconds": 133})
    'Finished after 600 steps and 2 min 13 s.'
    """
    name = str(status.get("state", "unknown"))
    verb = {"running": "Running", "interrupted": "Interrupted", "failed": "Failed", "finished": "Finished"}.get(name)
    if verb is None:
        return "The run has not said how far it came; what follows is what it has written so far."
    amounts = []
    if status.get("step") is not None:
        amounts.append(f"{status['step']:,} steps")
    if status.get("seconds") is not None:
        amounts.append(duration(status["seconds"]))
    after = f" after {' and '.join(amounts)}" if amounts else ""
    if name == "finished":
        return f"Finished{after}."
    epoch = f" in epoch {status['epoch']}" if status.get("epoch") is not None else ""
    return f"{verb}{epoch}{after}; what follows is what it had written by then."


def _part(info: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = info.get(name)
    return part if isinstance(part, Mapping) else {}


def _count(count: Any) -> str:
    """
    >>> _count({"records": 6000, "classes": 240}), _count(6000)
    ('6,000 records, 240 classes', '6,000')
    """
    if isinstance(count, Mapping):
        return ", ".join(f"{_count(number)} {name}" for name, number in count.items())
    return f"{count:,}" if isinstance(count, int) else readable(count)
