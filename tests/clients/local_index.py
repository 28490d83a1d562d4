"""A local search index, made by `kenari index add` itself out of a small folder of documents."""

import subprocess
import sys
from pathlib import Path

BASE = "https://birds.example/"
PAGES = {
    "canary.md": "# The canary\n\nA canary eats seeds: canary grass, rape and niger seed. It drinks water and likes "
    "fresh greens such as chickweed. What do canaries eat in winter? The same food, and fruit.",
    "kenari/tree.html": "<!doctype html><title>x</title><h1>The kenari tree</h1><p>The kenari tree (Canarium) bears "
    "nuts that people in Maluku eat. It shades the nutmeg gardens of the Banda islands.</p>",
    "notes.txt": "Notes on the search for food of birds in the garden: what a bird eats, when it sings, and where to "
    "find information about it on the web.",
}


def make_index(folder: Path) -> Path:
    """The index file, with the pages above in it."""
    pages = folder / "pages"
    for name, text in PAGES.items():
        file = pages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    index = folder / "index.db"
    config = folder / "index.toml"
    config.write_text(search_table(index), encoding="utf-8")
    command = [sys.executable, "-m", "kenari.cli", "index", "add", str(pages), "--url", BASE, "--config", str(config)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{len(PAGES)} read"), done.stdout
    return index


def search_table(index: Path, price: str = "0.005") -> str:
    """The table of a configuration that searches this index."""
    return f'[search]\nbackend = "index"\nindex = "{index}"\nprice = "{price}"\n'
