//! Every unsafe block and every system call that std lacks.
