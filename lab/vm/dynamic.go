// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Folders of the peers, here and in the machine.
const (
	peersHere  = ".cache/peers"
	peersThere = "/peers"
)

// peerTools are the peers' programs that tests of the plan call.
var peerTools = map[string]string{"nft": "usr/sbin/nft", "bird": "usr/sbin/bird"}

// addPeers adds what the lab needs of the peers, with their libraries, where
// lab/peers looks for it.
func addPeers(a *archive, root string) error {
	peers := filepath.Join(root, peersHere)
	a.file(peersThere+"/stamp", filepath.Join(peers, "stamp"))
	libraries, err := filepath.Glob(filepath.Join(peers, "root/usr/lib/*-linux-gnu"))
	if err != nil {
		return err
	}
	for name, program := range peerTools {
		file := filepath.Join(peers, "root", program)
		if err := addDynamic(a, file, strings.Join(libraries, ":")); err != nil {
			return fmt.Errorf("%w; run scripts/peers", err)
		}
		a.file(peersThere+"/bin/"+name, file)
	}
	return a.err
}

// addDynamic adds the libraries of a program under the names by which it asks
// for them, and the loader.
func addDynamic(a *archive, file, path string) error {
	cmd := exec.Command("ldd", file)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+path)
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the libraries of %s cannot be found: %w", file, err)
	}
	for name, file := range librariesOf(string(text)) {
		a.file(name, file)
	}
	return a.err
}

// librariesOf reads what ldd says: where each library belongs in the machine, and
// where it is here.
func librariesOf(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 3 && fields[1] == "=>" && filepath.IsAbs(fields[2]):
			found["/lib/"+filepath.Base(fields[0])] = fields[2]
		case len(fields) >= 1 && filepath.IsAbs(fields[0]): // the loader
			found[fields[0]] = fields[0]
		}
	}
	return found
}
