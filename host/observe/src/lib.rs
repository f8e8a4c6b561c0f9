//! Kernel to samples: TCP_INFO, CPU, the fingerprint of a host. Promise: reads only.
