"""Prompts that operators' traffic turns into, and that a head for English chat was not trained on.

    python benchmarks/lab/shifts.py OUT

`german.jsonl`: everyday questions in German, `chinese.jsonl` in Chinese. `translate.jsonl`:
sentences to be translated. `logs.jsonl`: six JSON log lines to be turned into records. 144 prompts
each, the same each time.

Exit codes: 0 written, 64 usage.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from usage import Parser, run  # noqa: E402

COUNT = 144
ASKED = (
    "Erkläre einem Schüler das Thema „{}“ in einfachen Worten.",
    "Schreibe einen kurzen Zeitungsartikel zum Thema „{}“.",
    "Nenne fünf Vorteile und fünf Nachteile zum Thema „{}“.",
    "Was sind die häufigsten Irrtümer beim Thema „{}“?",
    "Schreibe eine höfliche E-Mail an einen Kollegen über das Thema „{}“.",
    "Entwirf einen Unterrichtsplan von vier Wochen zum Thema „{}“.",
    "Fasse zusammen, was man über das Thema „{}“ wissen sollte.",
    "Schreibe ein Gespräch zwischen zwei Freunden über das Thema „{}“.",
    "Welche Fragen stellt ein Anfänger zum Thema „{}“? Beantworte sie.",
    "Schreibe ein Gedicht über das Thema „{}“.",
    "Wie hat sich das Thema „{}“ in den letzten hundert Jahren verändert?",
    "Gib mir eine Schritt-für-Schritt-Anleitung zum Thema „{}“.",
)
TOPICS = (
    "Kochen für die Familie",
    "Geld sparen",
    "Eisenbahn",
    "Gartenarbeit im Frühling",
    "Bewerbung um eine Stelle",
    "Wetter und Klima",
    "Gesunder Schlaf",
    "Reisen mit Kindern",
    "Geschichte der Stadt Hamburg",
    "Fahrrad reparieren",
    "Datenschutz im Betrieb",
    "Sport im Alter",
)
CHINESE = (
    "请用简单的语言向学生解释“{}”。",
    "请写一篇关于“{}”的短文。",
    "请列出“{}”的五个优点和五个缺点。",
    "关于“{}”最常见的误解是什么？",
    "请给同事写一封关于“{}”的邮件。",
    "请为“{}”制定一个四周的教学计划。",
    "请总结一下“{}”的要点。",
    "请写一段两个朋友谈论“{}”的对话。",
    "初学者对“{}”会问哪些问题？请回答。",
    "请写一首关于“{}”的诗。",
    "过去一百年里“{}”发生了什么变化？",
    "请一步一步地说明如何做好“{}”。",
)
CHINESE_TOPICS = (
    "家庭烹饪",
    "省钱",
    "铁路",
    "春天的园艺",
    "求职",
    "天气和气候",
    "健康的睡眠",
    "带孩子旅行",
    "北京的历史",
    "修理自行车",
    "公司的数据保护",
    "老年人的运动",
)
LANGUAGES = ("French", "Spanish", "German", "Italian", "Portuguese", "Dutch")
SENTENCES = (
    "The pod restarted twice during the night and nobody was paged, so the queue grew.",
    "Our customers ask for shorter answers and better examples in the handbook.",
    "The old bridge over the river will be closed for repairs until the end of April.",
    "She had forgotten her umbrella and waited under the awning of the bakery.",
    "Please send the invoice again, since the amount differs from what we agreed.",
    "The committee postponed its decision because two members were ill.",
    "After the storm the fishermen repaired their nets on the beach.",
    "He learned to play the violin from his grandmother in a small village.",
    "The lift is out of order; the technician comes on Thursday morning.",
    "Most of the apples that fell in August were given to the neighbour's pigs.",
    "Your parcel could not be delivered and waits for you at the post office.",
    "The museum shows letters that the painter wrote to his brother.",
    "Turn off the water before you loosen the pipe under the sink.",
    "The mayor promised new bicycle lanes, but the council has not voted yet.",
    "We missed the last train and slept on the benches of the waiting room.",
    "The contract ends in June unless one of the parties gives notice.",
    "Children under six travel free when an adult comes with them.",
    "The soup needs more salt and a spoonful of lemon juice.",
    "Her doctor told her to walk for half an hour every evening.",
    "The server answers slowly since the certificate was renewed.",
    "Nobody knows who painted the small portrait above the fireplace.",
    "The bees left the hive on the first warm day of the year.",
    "All employees must change their passwords before the first of March.",
    "The ferry was late because of fog, and the market had closed.",
)
SERVICES = ("checkout", "gateway", "billing", "search", "auth", "inference", "mailer", "ledger")
EVENTS = (
    ("INFO", "request served"),
    ("INFO", "cache refreshed"),
    ("WARN", "retrying upstream"),
    ("WARN", "queue above limit"),
    ("ERROR", "connection reset by peer"),
    ("ERROR", "deadline exceeded"),
)
TASKS = (
    'Return a JSON array of all lines with level ERROR, with the keys "ts", "service" and "msg".',
    "Turn these lines into a CSV with a header. Print nothing else.",
    "Count the lines of each service and print the counts as a JSON object.",
    "Print each line again with the key ms renamed to duration_ms and nothing else changed.",
)


def main(arguments: list[str]) -> int:
    """As the module says."""
    parser = Parser("shifts", str(__doc__))
    parser.add_argument("out", type=Path, metavar="OUT")
    write(parser.parse_args(arguments).out)
    return 0


def write(out: Path) -> None:
    """Writes all of them."""
    out.mkdir(parents=True, exist_ok=True)
    sets = {
        "german": asked_of(ASKED, TOPICS),
        "chinese": asked_of(CHINESE, CHINESE_TOPICS),
        "translate": translations(),
        "logs": logs(6),
    }
    for name, prompts in sets.items():
        rows = ({"id": f"{name}-{n:03d}", "prompt": text} for n, text in enumerate(prompts))
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / f"{name}.jsonl").write_text(text, encoding="utf-8")


def asked_of(asked: tuple[str, ...], topics: tuple[str, ...]) -> Iterator[str]:
    """Every question about every topic, questions and topics in turns."""
    for n in range(COUNT):
        at = n % len(asked)
        yield asked[at].format(topics[(n // len(asked) + at) % len(topics)])


def translations() -> Iterator[str]:
    """Every sentence into every language, both in turns."""
    for n in range(COUNT):
        at = n % len(SENTENCES)
        language = LANGUAGES[(n // len(SENTENCES) + at) % len(LANGUAGES)]
        yield f'Translate into {language}: "{SENTENCES[at]}"'


def logs(lines: int) -> Iterator[str]:
    """A task, and so many lines of a log."""
    drawn = random.Random(lines)
    for n in range(COUNT):
        rows = []
        for at in range(lines):
            level, said = drawn.choice(EVENTS)
            row = {
                "ts": f"2025-03-{1 + n % 28:02d}T{drawn.randrange(24):02d}:{at:02d}:07Z",
                "service": drawn.choice(SERVICES),
                "level": level,
                "msg": said,
                "ms": drawn.randrange(3, 4000),
            }
            rows.append(json.dumps(row))
        yield f"{TASKS[n % len(TASKS)]}\n\n" + "\n".join(rows)


if __name__ == "__main__":
    run("shifts", main)
