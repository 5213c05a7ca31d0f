#!/usr/bin/env python3
"""A proposer for flashcore evolve that asks a language model, through the API that many servers
share (POST /v1/chat/completions). Standard library only. docs/evolve.md has the protocol.

  export OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_MODEL=NAME OPENAI_API_KEY=...
  flashcore evolve run DIR --proposer examples/evolve/openai_proposer.py --evaluations 20
"""
import json
import os
import re
import sys
import urllib.request

ASK = {"initial": "Write the kernel anew, in another way than the program below.",
       "mutation": "Change one thing of the program below that makes it faster.",
       "crossover": "Join what is good in the programs below.",
       "insight": "Say what limits the program below, by its measurements, and remove that limit."}
ANSWER = ("Answer with one line `name: ...`, one line `thought: ...` that says why it will be faster, one line "
          "`score: ...` with the score that you predict, and then the whole program in one block of code.")


def prompt_of(request: dict) -> str:
    task = request["task"]
    where = task["device"].get("name", task["device"]["kind"])
    rules = ("Device code alone." if task["language"] == "cuda" else
             "One thread. Only functions of mathematics and memory of the C library may be called.")
    parts = [f"Make this {task['language']} function fast on {where}.", task["signature"], task["semantics"],
             f"Shapes to win on: {json.dumps(task['shapes'])}. Compiled with: {' '.join(task['compiler'])}. {rules}"]
    for old in request.get("insights", []):
        parts.append(f"Attempt {old['id']}: {old['outcome']} {old['reason']} score {old['measured']:.3g}; "
                     f"its thought was: {old['thought']}")
    parts.append(ASK[request["operator"]])
    for program in request["parents"] + request.get("history", []):
        parts.append(f"Score {program['score']:.3g}, parameters {json.dumps(program['parameters'])}:\n"
                     f"```\n{program['source']}\n```")
        if "insights" in program:
            told = {key: program["insights"].get(key) for key in ("times", "compiler", "launch", "profile")}
            parts.append(f"Measured: {json.dumps({key: value for key, value in told.items() if value})}")
    return "\n\n".join(parts + [ANSWER])


def ask(prompt: str) -> str:
    body = {"model": os.environ.get("OPENAI_MODEL", "default"),
            "messages": [{"role": "user", "content": prompt}]}
    url = os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1") + "/chat/completions"
    headers = {"Content-Type": "application/json",
               "Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "none")}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def proposal_of(text: str) -> dict:
    said = {key.lower(): value.strip() for key, value in re.findall(r"^(name|thought|score): *(.*)$", text, re.M | re.I)}
    blocks = re.findall(r"```[^\n]*\n(.*?)```", text, re.S)
    if not blocks:
        sys.exit("the model wrote no program")
    proposal = {"version": 1, "name": said.get("name", "unnamed")[:200], "source": max(blocks, key=len),
                "thought": said.get("thought", "")[:20000]}
    score = re.match(r"[0-9.]+", said.get("score", ""))
    return proposal | ({"predicted": {"score": float(score[0])}} if score and float(score[0]) > 0 else {})


if __name__ == "__main__":
    json.dump(proposal_of(ask(prompt_of(json.load(sys.stdin)))), sys.stdout)
