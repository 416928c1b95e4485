// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kernel is what to boot.
type kernel struct {
	image, release string
	modules        string // folder; empty if everything is built in
}

// findKernel takes the kernel of the command line, or the one that scripts/peers
// fetched.
func findKernel(root string, s settings) (kernel, error) {
	k := kernel{image: s.kernel, modules: s.modules}
	if k.image == "" {
		found, err := filepath.Glob(filepath.Join(root, ".cache/kernel/root/boot/vmlinuz-*"))
		if err != nil || len(found) == 0 {
			return k, errors.New("there is no kernel to boot: run scripts/peers kernel, or name one with -kernel")
		}
		k.image = found[len(found)-1]
	} else if _, err := os.Stat(k.image); err != nil {
		return k, fmt.Errorf("the kernel cannot be read: %w", err)
	}
	if name, ok := strings.CutPrefix(filepath.Base(k.image), "vmlinuz-"); ok {
		k.release = name
	}
	if k.modules != "" || k.release == "" {
		return k, nil
	}
	for _, lib := range []string{"../usr/lib/modules", "../lib/modules", "/lib/modules"} {
		if !filepath.IsAbs(lib) {
			lib = filepath.Join(filepath.Dir(k.image), lib)
		}
		if dir := filepath.Join(lib, k.release); isFolder(dir) {
			k.modules = dir
			break
		}
	}
	return k, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// chosen is the part of the plan that the command line asks for.
func chosen(s settings) []suite {
	var suites []suite
	list := plan
	if s.sctp {
		list = kernelSCTP
	}
	for _, p := range list {
		if s.run != "" {
			p.Run = s.run
		}
		if len(s.packages) == 0 {
			suites = append(suites, p)
		}
	}
	for _, name := range s.packages {
		suites = append(suites, suite{Package: strings.TrimPrefix(filepath.Clean(name), "./"), Run: s.run})
	}
	return suites
}

// buildImage makes the machine's first file system.
func buildImage(root, scratch, image string, k kernel, s settings) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newArchive(f)
	a.console()
	for _, folder := range []string{"/proc", "/sys", "/tmp", "/run", "/etc", "/var/lib", "/root"} {
		a.folder(folder)
	}
	a.text("/etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"))
	a.text("/etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	// Not this program's own file, which may need libraries.
	program := filepath.Join(scratch, "init")
	if err := compile(root, "build", "-o", program, "./lab/vm"); err != nil {
		return err
	}
	a.file("/init", program)
	if err := addTools(a, root); err != nil {
		return err
	}
	if err := addPeers(a, root); err != nil {
		return err
	}
	suites := chosen(s)
	if err := addTests(a, root, scratch, suites); err != nil {
		return err
	}
	text, err := json.Marshal(suites)
	if err != nil {
		return err
	}
	a.text(planFile, 0o644, text)
	modules := wanted
	if s.sctp {
		modules = slices.Concat(wanted, sctpModules)
	}
	if err := addModules(a, k, modules); err != nil {
		return err
	}
	if err := a.close(); err != nil {
		return fmt.Errorf("the machine's file system cannot be written: %w", err)
	}
	return f.Close()
}

// addTools adds the small programs that tests call, all of which are one static
// file; without it only some tests fail, and say why.
func addTools(a *archive, root string) error {
	busybox := filepath.Join(root, ".cache/kernel/root/usr/bin/busybox")
	if _, err := os.Stat(busybox); err != nil {
		say("no busybox in .cache/kernel: tests that call a shell will fail")
		return nil
	}
	a.file("/bin/busybox", busybox)
	for _, name := range []string{"sh", "sleep", "cat", "true", "false", "ps", "ls", "dmesg"} {
		a.link("/bin/"+name, "busybox")
	}
	return a.err
}

// addTests compiles the tests and isthmus, which those of the lab and of roles start.
func addTests(a *archive, root, scratch string, suites []suite) error {
	say("compiling the tests of %d packages", len(suites))
	program := filepath.Join(scratch, "isthmus")
	if err := compile(root, "build", "-o", program, "./cmd/isthmus"); err != nil {
		return err
	}
	a.file("/bin/isthmus", program)
	args := []string{"test", "-c", "-o", scratch + "/"}
	for _, s := range suites {
		args = append(args, "./"+s.Package)
	}
	if err := compile(root, args...); err != nil {
		return err
	}
	for _, s := range suites {
		program := filepath.Join(scratch, filepath.Base(s.program()))
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("the package %s has no tests", s.Package)
		}
		a.file(s.program(), program)
		// Tests read what lies beside them: testdata, C source, objects.
		a.tree(s.folder(), filepath.Join(root, s.Package))
	}
	return nil
}

// compile calls go; what it makes is static, since the machine has no library.
func compile(root string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=local")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s failed:\n%s", strings.Join(args, " "), said)
	}
	return nil
}

// addModules adds the modules that the tests need, numbered in the order in
// which they are loaded.
func addModules(a *archive, k kernel, modules []string) error {
	if k.modules == "" {
		say("no modules beside %s: what it lacks must be built in", k.image)
		return nil
	}
	set, err := findModules(k.modules)
	if err != nil {
		return err
	}
	list, err := order(set, modules, set.read)
	if err != nil {
		return err
	}
	for i, m := range list {
		a.text(fmt.Sprintf("%s/%03d-%s.ko", moduleFolder, i, m.name), 0o644, m.content)
	}
	return nil
}

// say tells the person what goes on.
func say(format string, args ...any) { fmt.Printf("vm: "+format+"\n", args...) }
