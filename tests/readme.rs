//! What the README says can be done.

use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// The commands in the `sh` blocks.
fn commands() -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in readme().lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => commands.push(line.to_owned()),
            _ => {}
        }
    }
    commands
}

/// Runs a command of the README with more arguments, and gives what it prints. In the profile of
/// this test, so that it builds nothing that is not built.
fn run(command: &str, more: &[&str]) -> String {
    let words: Vec<_> = command.split_whitespace().filter(|word| *word != "--release").collect();
    let ["cargo", arguments @ ..] = &words[..] else { panic!("{command}") };
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(arguments).args(more).current_dir(root()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands run: the main job in short, and the look at its file. The tests are what runs now.
#[test]
fn the_commands_work() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("train_digits.milepost").display().to_string();
    let commands = commands();
    let [build, train, ls, tests] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(tests, "cargo test --all-features");

    run(build, &[]);
    let line = run(train, &["--", "--store", &store, "--steps", "600", "--save-every", "50"]);
    assert!(line.starts_with("step 600 loss "), "{line}");
    let ls = ls.strip_suffix("train_digits.milepost").unwrap();
    let list = run(ls, &[&store]);
    assert!(list.contains("test_accuracy"), "{list}");
    assert!(list.contains(" 600 "), "{list}");
}

/// The table has every option of the example with its default.
#[test]
fn the_options_are_those_of_the_example() {
    let help = run("cargo run --example train_digits", &["--", "--help"]);
    // The terminal decides where lines end.
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = readme();
    let mut options = 0;
    for part in words.split(" --").skip(1) {
        let Some((about, rest)) = part.split_once(" [default: ") else { continue };
        let option: Vec<_> = about.split_whitespace().take(2).collect();
        let option = option.join(" ").replace(['<', '>'], "");
        let row = text.lines().find(|row| row.starts_with(&format!("| `--{option}` |"))).unwrap();
        let cell = row.split('|').nth(2).unwrap().trim().trim_matches('`');
        assert_eq!(Some(cell), rest.split(']').next(), "{option}");
        options += 1;
    }
    assert_eq!(options, 4);
}

#[test]
fn the_files_it_names_are_there() {
    let text = readme();
    let links: Vec<_> =
        text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 5);
    for link in links.iter().filter(|link| !link.starts_with("http")) {
        assert!(root().join(link).exists(), "{link}");
    }
}
