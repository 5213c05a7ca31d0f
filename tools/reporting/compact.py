"""The compact form of evidence files, as bench/evidence/compact.cpp writes it (see its header)."""


def whole(document):
    """The evidence of a compact document. Raises a ValueError for what is none."""

    def opened(value):
        if isinstance(value, str) and value[:1] == "@":
            return texts[value]
        if isinstance(value, dict):
            return {name: opened(member) for name, member in value.items()}
        if not isinstance(value, list):
            return value
        if not value or not isinstance(value[0], str) or value[0][:1] != "#":
            return [opened(item) for item in value]
        result: dict = {}
        items = iter(value[1:])
        for entry in forms[value[0]]:
            path, leaf = entry if isinstance(entry, list) else (entry, opened(next(items)))
            *outer, name = path.split("/")
            place = result
            for step in outer:
                place = place.setdefault(step, {})
            place[name] = leaf
        if more := list(items):
            raise ValueError(f"{value[0]} has {len(more)} values too many")
        return result

    try:
        forms = {form[0]: form[1:] for form in document.pop("forms", [])}
        texts = document.pop("texts", {})
        return opened(document)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration, AttributeError) as error:
        raise ValueError(f"{error!r}: no compact form of evidence") from error
