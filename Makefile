# make lab      JupyterLab on the first lesson
# make test     every check, in the mode that this machine has
# make conformance   Numba's own CUDA tests, and other projects', here and on Numba's simulator: docs/simulator.md
# make site     the lessons, results and pages as files in build/site: for any browser, without a network
# make install  only the environment that lab and test need
#
# All make .venv on first use and install into it what pyproject.toml says, in the versions of constraints.txt: with uv
# where it is installed, else with Python's own venv and pip.
#   PYTHON=/path/to/python3.12   the Python to make .venv with
#   VENV=/path/to/folder         another folder for it; VENV=none: install nothing, use PYTHON with what it has
#   ARGS="--port 9000"           handed on to JupyterLab
# make pin      (maintainers) write constraints.txt anew; needs uv

SHELL = /bin/sh
PYTHON ?=
VENV ?=
ARGS ?=
export ARGS

# The first Python of a supported version that can make virtual environments; else the first of a supported version,
# which says what it lacks.
define FIND_PYTHON
chosen=; spare=; seen=; \
for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
  version=$$("$$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
  case "$$version" in 3.11|3.12|3.13) ;; *) seen="$$seen $$candidate is $$version;"; continue ;; esac; \
  [ -n "$$spare" ] || spare=$$candidate; \
  if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then chosen=$$candidate; break; fi; \
done; \
chosen=$${chosen:-$$spare}; \
if [ -z "$$chosen" ]; then \
  echo "dwlab needs Python 3.11, 3.12 or 3.13.$${seen:- No Python was found.}" >&2; \
  echo "Install one (Debian, Ubuntu: sudo apt install python3.12 python3.12-venv; macOS: brew install python@3.12;" >&2; \
  echo "conda: see environment.yml), or name one: make $@ PYTHON=/path/to/python3.12" >&2; \
  exit 2; \
fi
endef

.PHONY: lab test site install conformance pin

lab test site install conformance:
	@$(FIND_PYTHON); exec "$$chosen" notebooks/lab.py $@ --venv="$(VENV)" $(if $(PYTHON),--exact)

# For the very first 3.11: some packages ask for a later one than Debian's 3.11.2. Only what both GPU extras agree on is
# pinned: CUDA's own packages follow the driver's generation.
RESOLVE = uv pip compile --quiet --no-annotate --no-header --python-version 3.11.0 --python-platform linux \
	--only-binary :all: --extra dev --extra lab pyproject.toml

pin:
	@folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && \
	$(RESOLVE) --extra gpu-cu12 > "$$folder/12" && $(RESOLVE) --extra gpu-cu13 > "$$folder/13" && \
	{ grep '^#' constraints.txt; grep -Fxf "$$folder/12" "$$folder/13"; } > "$$folder/pins" && \
	cat "$$folder/pins" > constraints.txt && echo "Wrote constraints.txt."
