# One image per service: `docker build --target guard -t trimtab/guard .` (targets: collector, decider, guard, actuator,
# rewarder, and `lab` for test workloads). Each holds the locked packages of its own extras and no others. Plain
# instructions only, so that builders without BuildKit take it.
ARG PYTHON=python:3.11-slim

# ---- what is built ---------------------------------------------------------------------------------------------------

FROM ${PYTHON} AS builder
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY pyproject.toml requirements.lock deploy/docker/lock_subset.py ./
RUN python lock_subset.py group:build > build.txt \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --quiet --require-hashes --no-deps --only-binary :all: -r build.txt
# The packages that every service needs. `pip check` would tell if the lock's subset were too small. Byte code is made here,
# since the file system is read-only later, and is never compared with its source again.
RUN python lock_subset.py > common.txt \
 && python -m venv --without-pip /opt/trimtab \
 && pip --python /opt/trimtab/bin/python install --quiet --no-compile --require-hashes --no-deps --only-binary :all: -r common.txt \
 && pip --python /opt/trimtab/bin/python check \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/trimtab/lib

FROM builder AS collector-packages
RUN python lock_subset.py collector > own.txt \
 && pip --python /opt/trimtab/bin/python install --quiet --no-compile --require-hashes --no-deps --only-binary :all: -r own.txt \
 && pip --python /opt/trimtab/bin/python check \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/trimtab/lib

FROM builder AS decider-packages
RUN python lock_subset.py decider > own.txt \
 && pip --python /opt/trimtab/bin/python install --quiet --no-compile --require-hashes --no-deps --only-binary :all: -r own.txt \
 && pip --python /opt/trimtab/bin/python check \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/trimtab/lib

FROM builder AS wheel
COPY README.md ./
COPY schemas schemas
COPY runtime runtime
COPY hostfs hostfs
COPY services services
COPY cli cli
COPY lab lab
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist .

FROM builder AS common-files
COPY --from=wheel /dist /dist
RUN pip --python /opt/trimtab/bin/python install --quiet --no-compile --no-index --no-deps /dist/*.whl \
 && cd /opt/trimtab/lib/python3*/site-packages \
 && python -m compileall -q --invalidation-mode unchecked-hash schemas runtime hostfs services cli lab

FROM collector-packages AS collector-files
COPY --from=wheel /dist /dist
RUN pip --python /opt/trimtab/bin/python install --quiet --no-compile --no-index --no-deps /dist/*.whl \
 && cd /opt/trimtab/lib/python3*/site-packages \
 && python -m compileall -q --invalidation-mode unchecked-hash schemas runtime hostfs services cli lab

FROM decider-packages AS decider-files
COPY --from=wheel /dist /dist
RUN pip --python /opt/trimtab/bin/python install --quiet --no-compile --no-index --no-deps /dist/*.whl \
 && cd /opt/trimtab/lib/python3*/site-packages \
 && python -m compileall -q --invalidation-mode unchecked-hash schemas runtime hostfs services cli lab

# ---- what is shipped -------------------------------------------------------------------------------------------------

FROM ${PYTHON} AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION} \
      org.opencontainers.image.vendor="Trimtab"
ENV PATH=/opt/trimtab/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY deploy/docker/healthcheck.py /opt/healthcheck.py
# Python's images come without byte code, and nobody here could write it: without this every start and every verb compiles
# the library anew, most of a second of CPU on a node that has none to spare.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
      -x '/(site-packages|dist-packages|ensurepip|idlelib|lib2to3|tkinter|turtledemo|test|tests)/' \
      "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
WORKDIR /
USER 65532:65532

# Test workloads (an API, a batch job, a monitor, a load generator) and the simulated node.
FROM runtime AS lab
LABEL org.opencontainers.image.title="trimtab-lab" \
      org.opencontainers.image.description="Test workloads for Trimtab, and its simulated node"
COPY --from=common-files /opt/trimtab /opt/trimtab
COPY deploy/docker/stage.py /opt/stage.py
ENTRYPOINT ["python"]
CMD ["-m", "lab.workloads.api", "--help"]

FROM runtime AS collector
LABEL org.opencontainers.image.title="trimtab-collector" \
      org.opencontainers.image.description="Trimtab's collector: finds pods, reads their signals, publishes states"
COPY --from=collector-files /opt/trimtab /opt/trimtab
EXPOSE 9401
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-I", "-S", "/opt/healthcheck.py", "9401"]
ENTRYPOINT ["python", "-m", "services.collector"]

FROM runtime AS decider
LABEL org.opencontainers.image.title="trimtab-decider" \
      org.opencontainers.image.description="Trimtab's decider: chooses class weights and learns from rewards"
COPY --from=decider-files /opt/trimtab /opt/trimtab
EXPOSE 9402
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-I", "-S", "/opt/healthcheck.py", "9402"]
ENTRYPOINT ["python", "-m", "services.decider"]

FROM runtime AS guard
LABEL org.opencontainers.image.title="trimtab-guard" \
      org.opencontainers.image.description="Trimtab's guard: judges every action and takes back what did harm"
COPY --from=common-files /opt/trimtab /opt/trimtab
EXPOSE 9403
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-I", "-S", "/opt/healthcheck.py", "9403"]
ENTRYPOINT ["python", "-m", "services.guard"]

# Writing cpu.weight takes the files' owner, root, and no capability.
FROM runtime AS actuator
LABEL org.opencontainers.image.title="trimtab-actuator" \
      org.opencontainers.image.description="Trimtab's actuator: the one process that writes cpu.weight"
COPY --from=common-files /opt/trimtab /opt/trimtab
USER 0:0
EXPOSE 9404
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-I", "-S", "/opt/healthcheck.py", "9404"]
ENTRYPOINT ["python", "-m", "services.actuator"]

FROM runtime AS rewarder
LABEL org.opencontainers.image.title="trimtab-rewarder" \
      org.opencontainers.image.description="Trimtab's rewarder: looks again and says what an action was worth"
COPY --from=common-files /opt/trimtab /opt/trimtab
EXPOSE 9405
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-I", "-S", "/opt/healthcheck.py", "9405"]
ENTRYPOINT ["python", "-m", "services.rewarder"]
