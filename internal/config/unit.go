// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
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
	said := serviceSays()
	name := cmp.Or(said["User"], "root") // systemd.exec(5)
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

// serviceSays is what the service's unit says by its keys: one unit alone, that of the folder with the last word, and then
// drop-ins in the order of their names, of each name again one (systemd.unit(5)). Sections, and lines that go on in the
// next one, are not looked at: User and Group need neither.
func serviceSays() map[string]string {
	unit, edits, said := "", map[string]string{}, map[string]string{}
	for _, folder := range unitFolders {
		if path := filepath.Join(folder, "isthmus.service"); exists(path) {
			unit = path
		}
		found, _ := filepath.Glob(filepath.Join(folder, "isthmus.service.d", "*.conf")) // the pattern is a good one
		for _, path := range found {
			edits[filepath.Base(path)] = path
		}
	}
	files := []string{unit}
	if unit == "" {
		said["User"] = packagedUser
	}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		files = append(files, edits[name])
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, "=")
			said[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return said
}

func exists(path string) bool {
	_, err := os.Lstat(path) // one that leads nowhere is there, too: it masks others
	return err == nil
}
