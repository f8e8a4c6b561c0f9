//! Reading the options of a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads one socket option into `buffer` and returns how many bytes the kernel filled, which for
/// structures that grew over the years (`TCP_INFO`) is fewer than asked on an older kernel.
///
/// # Errors
/// What getsockopt(2) says: `ENOPROTOOPT` for an option that this kernel or protocol lacks.
pub fn read_option(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(buffer.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the descriptor is open for the length of the borrow; the kernel writes at most `length`
    // bytes, which is the size of the exclusively borrowed buffer (or less), and then `length` itself.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((length as usize).min(buffer.len()))
}

/// Reads an option whose value is one C `int`.
///
/// # Errors
/// As [`read_option`]; also if the kernel's value is shorter than an `int`.
pub fn read_int_option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = [0; 4];
    // Some IP options answer with a single byte where the value fits: the rest stays zero, which is
    // the same number only in little-endian order, so the byte is taken by itself.
    match read_option(fd, level, name, &mut value)? {
        4 => Ok(i32::from_ne_bytes(value)),
        1 => Ok(i32::from(value[0])),
        n => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the kernel answered with {n} bytes where an int was expected"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn an_option_is_read_and_a_wrong_one_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let kind = read_int_option(listener.as_fd(), libc::SOL_SOCKET, libc::SO_TYPE);
        assert_eq!(kind.unwrap(), libc::SOCK_STREAM);
        let wrong = read_int_option(listener.as_fd(), libc::SOL_SOCKET, 9999).unwrap_err();
        assert_eq!(wrong.raw_os_error(), Some(libc::ENOPROTOOPT));
    }
}
