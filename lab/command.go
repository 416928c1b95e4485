// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"os/exec"
	"regexp"
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

// plainWord is what a shell takes as it stands.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote writes a word so that a shell takes it for one.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
