# make lab      JupyterLab on the first lesson
# make test     every check, in the mode that this machine has
# make install  only the environment that the two need
#
# All make .venv on first use and install into it what pyproject.toml says, in the versions of constraints.txt.
#   PYTHON=/path/to/python3.12   the Python to make .venv with
#   VENV=/path/to/folder         another folder for it; VENV=none: install nothing, use PYTHON with what it has
#   ARGS="--port 9000"           handed on to JupyterLab
# make pin      (maintainers) write constraints.txt anew, with the oldest supported Python

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

.PHONY: lab test install pin

lab test install pin:
	@$(FIND_PYTHON); exec "$$chosen" -m dwlab.setup.lab $@ --venv="$(VENV)" $(if $(PYTHON),--exact)
