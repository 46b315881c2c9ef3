# syntax=docker/dockerfile:1

# PYTHON_DIGEST pins the base, for example @sha256:…; releases give it (see .github/workflows/release.yml), and
# without it the tag decides.
ARG PYTHON_VERSION=3.13
ARG PYTHON_DIGEST=""

FROM docker.io/library/python:${PYTHON_VERSION}-slim${PYTHON_DIGEST} AS build
COPY requirements.lock /src/requirements.lock
# No dependency is resolved here: the lock has every package with its hashes, and leaves out what only the
# asynchronous half of the Kubernetes client needs.
RUN python -m venv --without-pip /opt/rebalancer
RUN python -m pip --python /opt/rebalancer/bin/python install --no-cache-dir --disable-pip-version-check \
    --no-deps --require-hashes --only-binary :all: --no-compile -r /src/requirements.lock
# Without rebalancer/sandbox: .dockerignore keeps it out, and the lock has no package for it.
COPY rebalancer /src/rebalancer
RUN cp -r /src/rebalancer "$(/opt/rebalancer/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
# Bytecode that does not depend on times of files: the same sources give the same image, and nothing has to be
# written when it starts.
RUN cd /opt/rebalancer/lib/python*/site-packages && rm -rf kubernetes/aio kubernetes/test kubernetes/docs \
    && find . -depth -type d \( -name tests -o -name __pycache__ \) -exec rm -rf {} + \
    && /opt/rebalancer/bin/python -m compileall -q --invalidation-mode unchecked-hash .

# What a start needs, and nothing else: no shell, no pip, no packages of the distribution.
COPY deploy/image/root.py /src/root.py
RUN python -BI /src/root.py /opt/rebalancer /image

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=""
ARG SOURCE=""
LABEL org.opencontainers.image.title="rebalancer" \
      org.opencontainers.image.description="Restores Kubernetes topology spread with the fewest evictions" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
COPY --from=build /image /
COPY LICENSE /opt/rebalancer/LICENSE
# A number, so that runAsNonRoot can be checked without a user database.
USER 65532:65532
# numpy is used without linear algebra: its threads would only take memory.
ENV HOME=/tmp OPENBLAS_NUM_THREADS=1
# Python is process 1. To it, SIGTERM means nothing until a command has set its handler, but SIGINT always ends it.
STOPSIGNAL SIGINT
# No shell in between. -I: neither the environment nor the working directory changes what is imported.
ENTRYPOINT ["/opt/rebalancer/bin/python", "-BIu", "-m", "rebalancer"]
CMD ["--help"]
