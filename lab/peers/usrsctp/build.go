// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package usrsctp runs ends of SCTP associations by usrsctp, the library that ours is tested against and
// measured beside.
//
// The program that drives it is compiled where it is needed, by a compiler of the same private folder
// (docs/decisions/0037-compiling-for-usrsctp.md): the library is one stack per process, so each node of the lab
// has its own.
package usrsctp

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/isthmus-net/isthmus/lab/peers"
)

//go:embed program/peer.c
var source []byte

// Build compiles the program below dir and returns its path.
func Build(dir string) (program string, err error) {
	group, err := peers.FindGroup("usrsctp")
	if err != nil {
		return "", err
	}
	compiler, err := group.Program("tcc")
	if err != nil {
		return "", err
	}
	libraries, _ := filepath.Glob(filepath.Join(group.Dir, "root/usr/lib/*/libusrsctp.a"))
	if len(libraries) != 1 {
		return "", fmt.Errorf("%s has no usrsctp; this system's release may not carry it", group.Dir)
	}
	program = filepath.Join(dir, "usrsctp")
	file := program + ".c"
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return "", err
	}
	compile := exec.Command(compiler, arguments(group.Dir, libraries[0], program, file)...)
	if said, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the program that drives usrsctp cannot be compiled: %w: %s", err, said)
	}
	return program, nil
}

// arguments are those of the compiler. By itself it would look for headers, for the start of a program and for
// its own functions in the system. From there comes the shared C library alone, with which the program will run
// (docs/decisions/0001-private-peers.md).
func arguments(dir, library, program, file string) []string {
	folder, headers := filepath.Dir(library), filepath.Join(dir, "root/usr/include")
	architecture := filepath.Base(folder)
	in := func(name string) string { return filepath.Join(folder, name) }
	return []string{
		"-nostdinc", "-I" + in("tcc/include"), "-I" + filepath.Join(headers, architecture), "-I" + headers,
		"-nostdlib", "-o", program, in("crt1.o"), in("crti.o"), file, library,
		filepath.Join("/lib", architecture, "libc.so.6"), in("libc_nonshared.a"), in("tcc/libtcc1.a"), in("crtn.o"),
	}
}
