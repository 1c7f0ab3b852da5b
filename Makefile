.PHONY: check lint types test slow bench

check: lint types test ## everything a change must pass

lint:
	ruff check .
	ruff format --check .

types:
	mypy

test:
	pytest

slow: ## the learning runs, some minutes
	pytest -m slow

bench: ## the loop against Stable-Baselines3 (needs the extra `bench`)
	python -m benchmarks.loop --work cartpole --against sb3 --require 2.5 5
