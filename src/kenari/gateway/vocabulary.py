"""Counting tokens offline in a model's own vocabulary (U3), with the extra `tokenizer`. Without it everything is guessed.

Which vocabulary a model has is told from its name by the table below; a model that is not there is guessed. A vocabulary
is loaded in a thread the first time it is wanted, which takes a moment: until then the guess serves.
"""

import importlib
import importlib.util
import re
import threading
from typing import Any

PACKAGE = "splintr"

VOCABULARIES: tuple[tuple[str, str], ...] = (
    (r"gpt-oss|gpt-?4o|gpt-4\.[15]|gpt-[5-9]|chatgpt|codex|^o[1-9]\b", "o200k_base"),
    (r"gpt-4|gpt-3\.5|text-embedding-[3a]", "cl100k_base"),
    (r"qwen|qwq|baichuan-?m2", "qwen3"),
    (r"llama-?v?3|distill-llama", "llama3"),
    (r"llama-?v?2|vicuna|tinyllama", "llama2"),
    (r"deepseek", "deepseek_v3"),
    (r"glm-?[4-9]", "glm4"),
    (r"kimi-?k3", "kimi_k3"),
    (r"kimi|moonshot", "kimi_k2"),
    (r"gemma-?4", "gemma4"),
    (r"gemma-?3", "gemma3"),
    (r"gemma-?2", "gemma2"),
    (r"mixtral-8x7b|mistral-7b", "mistral_v1"),
    (r"mixtral|codestral", "mistral_v2"),
    (r"mistral|ministral|pixtral|magistral|devstral", "mistral_v3"),
    (r"phi-?4", "phi4"),
    (r"olmo-?2", "olmo2"),
)
"""What a model's name holds (without its maker's prefix, in small letters), and the vocabulary that it then has. The
first that fits holds: distilled models are named after both parents, and have the vocabulary of the one they grew from."""


def vocabulary_of(model: str) -> str:
    """The vocabulary that a model's name suggests, "" for none."""
    name = model.rpartition("/")[2].lower()
    return next((vocabulary for pattern, vocabulary in VOCABULARIES if re.search(pattern, name)), "")


class Vocabularies:
    """core.ports.Counter over the vocabularies of the extra."""

    def __init__(self) -> None:
        """Raises OSError when the extra is not installed."""
        if not self.there():
            raise OSError("the tokenizer is not installed. pip install 'kenari[tokenizer]'")
        self._names: dict[str, str] = {}
        self._loaded: dict[str, Any] = {}
        self._loading: dict[str, threading.Thread] = {}

    @staticmethod
    def there() -> bool:
        """The extra is installed."""
        return importlib.util.find_spec(PACKAGE) is not None

    def encoding(self, model: str) -> str:
        """The vocabulary of a model once it is loaded; asked for the first time it begins to load and is "" still."""
        name = self._names.get(model)
        if name is None:
            if len(self._names) > 10_000:  # names come from the configuration, and from callers with keys of their own
                self._names.clear()
            name = self._names[model] = vocabulary_of(model)
        if not name or name in self._loaded:
            return name
        if name not in self._loading:
            self._loading[name] = thread = threading.Thread(target=self._load, args=(name,), daemon=True)
            thread.start()
        return ""

    def count(self, encoding: str, text: str) -> int:
        """The tokens of a text. What looks like a control token in it counts as text."""
        return len(self._loaded[encoding].encode_ordinary(text))

    def wait(self, seconds: float) -> None:
        """Wait until what began to load is there (tests, measurements)."""
        for thread in list(self._loading.values()):
            thread.join(seconds)

    def _load(self, name: str) -> None:
        # the package costs memory and start-up time: it is only loaded where something has to be counted
        package: Any = importlib.import_module(PACKAGE)
        self._loaded[name] = package.Tokenizer.from_pretrained(name)
