# The workbook for a JupyterHub, or for one person: docker build -t dwlab . && docker run --gpus all -p 8888:8888 dwlab
# CUDA=gpu-cu12 for drivers of that generation; without a GPU the lessons run in simulated mode. What was tried of it, and
# what was not: docs/install.md. A hub that starts a command of its own runs `dwlab lab --no-start` before it.
FROM python:3.12-slim
ARG CUDA=gpu-cu13

COPY . /opt/dwlab
# An installed package has lessons, exercises and judges, and no answers; .dockerignore keeps these out of the layers, too.
RUN pip install --no-cache-dir --constraint /opt/dwlab/constraints.txt "/opt/dwlab[lab,$CUDA]" jupyterhub==6.1.1 && \
    rm -rf /opt/dwlab && useradd --create-home --uid 1000 student

USER student
WORKDIR /home/student
# A copy of one's own, in which what was written stays.
ENV ARGS="--ip 0.0.0.0"
CMD ["dwlab", "lab", "workbook"]
