# The workbook for a JupyterHub, or for one person: docker build -t dwlab . && docker run --gpus all -p 8888:8888 dwlab
# CUDA=gpu-cu12 for drivers of that generation; without a GPU the lessons run in simulated mode. Not tried yet: docs/install.md.
FROM python:3.12-slim
ARG CUDA=gpu-cu13

COPY . /opt/dwlab
# The answers stay out of what students get.
RUN rm -rf /opt/dwlab/solutions && pip install --no-cache-dir --constraint /opt/dwlab/constraints.txt \
        --editable "/opt/dwlab[$CUDA]" jupyterhub && \
    useradd --create-home --uid 1000 student

USER student
WORKDIR /home/student
# A copy of one's own, which keeps what was written in it; kernels and judge come from there, too.
CMD test -d workbook || cp -r /opt/dwlab workbook; cd workbook && export PYTHONPATH=$PWD && \
    exec python -m jupyterlab --ip 0.0.0.0 --no-browser --LabApp.default_url=/lab/tree/lessons/00_start_here.ipynb
