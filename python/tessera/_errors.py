class Error(Exception):
    """What was wrong with a file, a model or an input.

    `code` is explained in docs/errors.md; `hint` says what to do about it.
    """

    def __init__(self, code: str, message: str, where: str = "", note: str = "", hint: str = "") -> None:
        self.code = code
        self.message = message
        self.where = where
        self.note = note
        self.hint = hint
        parts = [f"{code}: {message}"]
        parts += [f"{label}: {text}" for label, text in (("at", where), ("note", note), ("hint", hint)) if text]
        super().__init__("\n  ".join(parts))

    def __reduce__(self) -> tuple[type[Exception], tuple[str, ...]]:
        return (Error, (self.code, self.message, self.where, self.note, self.hint))


class ModelWarning(UserWarning):
    """What a model got wrong and is used in spite of; its text begins with a code of docs/errors.md."""
