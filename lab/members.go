// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// runVariable marks the processes of a run, so that descendants that left
// their parent can be found.
const runVariable = "ISTHMUS_LAB_RUN"

// membersOf lists the processes that live in the namespaces of the run in dir
// or carry its mark: the children of children that no parent stops. The own
// process is never listed.
func membersOf(dir string) []identity {
	spaces := mountedNamespaces(filepath.Join(dir, namespaceDir))
	// Whatever stands in that directory, the host's own namespace is not ours.
	if home, ok := spaceOf("/proc/self/ns/net"); ok {
		delete(spaces, home)
	}
	mark := []byte(runVariable + "=" + dir)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var members []identity
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if !inAny(pid, spaces) && !marked(pid, mark) {
			continue
		}
		if id, err := identify(pid); err == nil {
			members = append(members, id)
		}
	}
	return members
}

// spaceID distinguishes namespaces.
type spaceID struct{ dev, ino uint64 }

// mountedNamespaces gives the ids of the namespaces mounted in a directory.
// A plain file there is a mount that is gone, and its id is no namespace's.
func mountedNamespaces(dir string) map[spaceID]bool {
	spaces := map[spaceID]bool{}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !mountedNamespace(path) {
			continue
		}
		if id, ok := spaceOf(path); ok {
			spaces[id] = true
		}
	}
	return spaces
}

func spaceOf(path string) (spaceID, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return spaceID{}, false
	}
	return spaceID{st.Dev, st.Ino}, true
}

func inAny(pid int, spaces map[spaceID]bool) bool {
	id, ok := spaceOf("/proc/" + strconv.Itoa(pid) + "/ns/net")
	return ok && spaces[id]
}

func marked(pid int, mark []byte) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for _, v := range bytes.Split(env, []byte{0}) {
		if bytes.Equal(v, mark) {
			return true
		}
	}
	return false
}
