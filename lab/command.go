// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"os/exec"
	"strings"
)

// Command is how a person starts this program from anywhere, for messages that
// name a further command: its name where that is in PATH, else its full path,
// with sudo in front if it was started by sudo.
func Command() string {
	command := os.Args[0]
	if _, err := exec.LookPath(command); err != nil || strings.Contains(command, "/") {
		if path, err := os.Executable(); err == nil {
			command = quote(path)
		}
	}
	if os.Getenv("SUDO_UID") != "" {
		return "sudo " + command
	}
	return command
}

// quote writes a word so that a shell takes it for one.
func quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, isSpecial) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// isSpecial reports whether a shell may not take a character as it stands.
func isSpecial(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_@%+=:,./-", r)
}
