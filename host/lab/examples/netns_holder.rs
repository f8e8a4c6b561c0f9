//! The process that holds a lab, for the tests: what the command's hidden subcommand does.

fn main() -> std::process::ExitCode {
    match linerate_lab::hold_namespaces() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
