// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// version and commit are set by the linker; a plain `go build` leaves them.
var (
	version = "unknown"
	commit  = ""
)

// VersionCmd prints what a report of a fault needs.
type VersionCmd struct {
	JSON bool `help:"Print JSON."`
}

// build is what version prints.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	System  string `json:"system"`
	Kernel  string `json:"kernel"`
}

// Run prints one line for each part.
func (c *VersionCmd) Run(to streams) error {
	b := build{Version: version, Commit: revision(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel()}
	if c.JSON {
		return json.NewEncoder(to.out).Encode(b)
	}
	_, err := fmt.Fprintf(to.out, "isthmus %s\ncommit  %s\ngo      %s %s\nkernel  %s\n", b.Version, b.Commit, b.Go, b.System, b.Kernel)
	return err
}

// revision is the commit from the linker, or what the Go tool noted.
func revision() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
