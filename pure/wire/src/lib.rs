//! The control protocol and the iperf3 protocol as machines without a socket.
