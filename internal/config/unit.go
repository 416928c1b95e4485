// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// packagedUser is whom isthmus.service runs as where no unit says otherwise; see dist/sysusers.d.
const packagedUser = "isthmus"

// unitFolders are where units are, the one with the last word at the end (systemd.unit(5)); tests bend it.
var unitFolders = []string{"/usr/lib/systemd/system", "/usr/local/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system"}

// runsAs is whom isthmus runs as: this user or, for root, who may check what the service is to run with, that of
// the service. Nil if it has none on this machine.
func runsAs() *user.User {
	if os.Geteuid() == 0 {
		return serviceUser()
	}
	this := &user.User{Uid: strconv.Itoa(os.Geteuid()), Gid: strconv.Itoa(os.Getegid())}
	this.Username = "user " + this.Uid
	if known, err := user.LookupId(this.Uid); err == nil {
		this.Username = known.Username
	}
	return this
}

// serviceUser is whom isthmus.service runs as on this machine, with its group there; nil if there is no such user.
func serviceUser() *user.User {
	said := map[string]string{}
	for _, files := range []string{"isthmus.service", "isthmus.service.d/*.conf"} {
		for _, folder := range unitFolders {
			found, _ := filepath.Glob(filepath.Join(folder, files)) // the pattern is a good one
			for _, file := range found {
				text, _ := os.ReadFile(file)
				for line := range strings.Lines(string(text)) {
					key, value, _ := strings.Cut(line, "=")
					said[strings.TrimSpace(key)] = strings.TrimSpace(value)
				}
			}
		}
	}
	name := cmp.Or(said["User"], packagedUser)
	found, err := user.Lookup(name)
	if _, unnamed := strconv.Atoi(name); unnamed == nil {
		found, err = user.LookupId(name)
	}
	if err != nil {
		return nil
	}
	if group, err := user.LookupGroup(said["Group"]); err == nil {
		found.Gid = group.Gid
	}
	return found
}
