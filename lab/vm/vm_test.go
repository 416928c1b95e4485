// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The format is that of the kernel's document: every entry begins on a boundary
// of four bytes, with 13 numbers of eight hexadecimal digits behind a magic.
func TestArchiveBytes(t *testing.T) {
	var b bytes.Buffer
	a := newArchive(&b)
	a.text("/d/f", 0o644, []byte("hello"))
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	header := func(fields ...string) string { return "070701" + strings.Join(fields, "") }
	want := header("00000001", "000041ED", "00000000", "00000000", "00000001", "00000000", "00000000",
		"00000000", "00000000", "00000000", "00000000", "00000002", "00000000") + "d\x00" +
		header("00000002", "000081A4", "00000000", "00000000", "00000001", "00000000", "00000005",
			"00000000", "00000000", "00000000", "00000000", "00000004", "00000000") + "d/f\x00" + "\x00\x00" + "hello\x00\x00\x00" +
		header("00000003", "00000000", "00000000", "00000000", "00000001", "00000000", "00000000",
			"00000000", "00000000", "00000000", "00000000", "0000000B", "00000000") + "TRAILER!!!\x00" + "\x00\x00\x00"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("archive differs (-want +got):\n%s", diff)
	}
}

func TestArchiveTakesTreesAndTellsOfMissingFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "deep", "x"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	a := newArchive(&b)
	a.tree("/testdata", dir)
	a.tree("/nothing", filepath.Join(dir, "missing"))
	if a.err != nil {
		t.Fatal(a.err)
	}
	a.file("/missing", filepath.Join(dir, "missing"))
	if err := a.close(); !os.IsNotExist(err) {
		t.Errorf("error is %v, want that the file is missing", err)
	}
}

func TestModulesComeBehindWhatTheyNeed(t *testing.T) {
	set := moduleSet{"a": "/a.ko", "b_c": "/b-c.ko", "d": "/d.ko"}
	// The content of these modules is the list of what they need.
	needs := map[string]string{"a": "b_c,d", "b_c": "d"}
	var read []string
	list, err := order(set, []string{"a", "built-in", "b-c"}, func(name string) ([]byte, []string, error) {
		read = append(read, name)
		return nil, needed([]byte("license=GPL\x00depends=" + needs[name] + "\x00")), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list {
		names = append(names, m.name)
	}
	if diff := cmp.Diff([]string{"d", "b_c", "a"}, names); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
	if len(read) != 3 {
		t.Errorf("read were %v, want each once", read)
	}
}

func TestNeededNamesOthers(t *testing.T) {
	for _, c := range []struct {
		situation, info string
		want            []string
	}{
		{"nothing", "license=GPL\x00depends=\x00", nil},
		{"several, one with a hyphen", "depends=nf-tables,libcrc32c\x00name=x\x00", []string{"libcrc32c", "nf_tables"}},
		{"cut off", "depends=udp_tunnel", []string{"udp_tunnel"}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if diff := cmp.Diff(c.want, needed([]byte(c.info))); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLibrariesAreWhereTheProgramAsks(t *testing.T) {
	const said = "\tlinux-vdso.so.1 (0x00007fd040d65000)\n\tlibmnl.so.0 => /peers/lib/libmnl.so.0.2.0 (0x00007fd0)\n" +
		"\tlibgone.so.1 => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007fd040d67000)\n"
	want := map[string]string{
		"/lib/libmnl.so.0": "/peers/lib/libmnl.so.0.2.0", "/lib64/ld-linux-x86-64.so.2": "/lib64/ld-linux-x86-64.so.2",
	}
	if diff := cmp.Diff(want, librariesOf(said)); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
}

func TestFailuresAreNamed(t *testing.T) {
	const said = "=== RUN   TestA\n--- PASS: TestA (0.01s)\n    b_test.go:7: no\n--- FAIL: TestB (0.01s)\n    --- FAIL: TestB/row (0.00s)\n--- FAIL: TestC (1.00s)\n"
	for _, c := range []struct {
		situation, end string
		want           []string
	}{
		{"two failed", "FAIL\n", []string{"TestB", "TestC"}},
		{"the program ended early", "panic: no\n", nil},
	} {
		t.Run(c.situation, func(t *testing.T) {
			var to strings.Builder
			if diff := cmp.Diff(c.want, failures(strings.NewReader(said+c.end), &to)); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			if to.String() != said+c.end {
				t.Errorf("copied was %q", to.String())
			}
		})
	}
}

func TestConsoleIsFollowed(t *testing.T) {
	const console = "vm: testing fastpath\r\n=== RUN   TestA\r\n--- PASS: TestA (0.01s)\r\n=== RUN   TestB\r\n    b_test.go:7: no\r\n" +
		"--- FAIL: TestB (0.01s)\r\n--- SKIP: TestC (0.00s)\r\nFAIL\r\n"
	for _, c := range []struct {
		situation, end, verdict string
		all                     bool
		lines                   int
	}{
		{"tests failed", verdictFailed + "\r\n", verdictFailed, false, 6},
		{"all is wanted", verdictFailed + "\r\n", verdictFailed, true, 9},
		{"no verdict", "[ 1.0] Kernel panic\r\n", "", false, 6},
		{"cut in the verdict", verdictPassed[:10], "", false, 6},
		{"no end of line", verdictPassed, verdictPassed, false, 6},
	} {
		t.Run(c.situation, func(t *testing.T) {
			var to strings.Builder
			if got := follow(strings.NewReader(console+c.end), &to, c.all); got != c.verdict {
				t.Errorf("verdict is %q, want %q", got, c.verdict)
			}
			if got := strings.Count(to.String(), "\n"); got != c.lines {
				t.Errorf("%d lines were printed, want %d:\n%s", got, c.lines, to.String())
			}
		})
	}
}

func TestKernelIsFoundWithItsModules(t *testing.T) {
	root := t.TempDir()
	boot, modules := filepath.Join(root, ".cache/kernel/root/boot"), filepath.Join(root, ".cache/kernel/root/usr/lib/modules/6.1.0-1-amd64")
	if _, err := findKernel(root, settings{}); err == nil || !strings.Contains(err.Error(), "scripts/peers kernel") {
		t.Errorf("without a kernel the error is %v, want what to do", err)
	}
	for _, dir := range []string{boot, modules} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(boot, "vmlinuz-6.1.0-1-amd64")
	if err := os.WriteFile(image, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		situation string
		settings  settings
		want      kernel
	}{
		{"the fetched one", settings{}, kernel{image, "6.1.0-1-amd64", modules}},
		{"a named one", settings{kernel: image}, kernel{image, "6.1.0-1-amd64", modules}},
		{"other modules", settings{kernel: image, modules: "/m"}, kernel{image, "6.1.0-1-amd64", "/m"}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			got, err := findKernel(root, c.settings)
			if err != nil || got != c.want {
				t.Errorf("found %+v, error %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestVRFsAreInThePlan: what needs a VRF is skipped on machines without, and must run in this one.
func TestVRFsAreInThePlan(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, test := range testsOfVRFs(t, path) {
			found++
			if test == "TestNetworksAnnounced" { // it draws the same without VRFs
				continue
			}
			if !slices.ContainsFunc(plan, func(s suite) bool { return s.Package == name && regexp.MustCompile(s.Run).MatchString(test) }) {
				t.Errorf("%s: %s needs a VRF, and is not in the plan", name, test)
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("%d tests need a VRF: %v", found, err)
	}
}

// testsOfVRFs are the tests in a folder that are skipped where there is no VRF: there a function says so that they call, or that
// one does which they call.
func testsOfVRFs(t *testing.T, folder string) (list []string) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]map[string]bool{} // what functions name
	texts := make([][]byte, len(files))
	for i, path := range files {
		if texts[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Contains(bytes.Join(texts, nil), []byte("VRF")) {
		return nil
	}
	for i, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, texts[i], 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names[f.Name.Name] = namesIn(f)
			}
		}
	}
	needs := map[string]bool{"AddVRF": true, `"this kernel has no VRF"`: true}
	for before := 0; before < len(needs); {
		before = len(needs)
		for f, named := range names {
			for name := range named {
				if needs[name] {
					needs[f] = true
				}
			}
		}
	}
	for f := range needs {
		if strings.HasPrefix(f, "Test") {
			list = append(list, f)
		}
	}
	return list
}

// namesIn are the names and texts in a function.
func namesIn(f *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names[n.Name] = true
		case *ast.BasicLit:
			names[n.Value] = true
		}
		return true
	})
	return names
}
