// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package program has tests run isthmus as its users do: as a process, with a manager that
// hears of its states, and as the packaged service.
package program

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

// binaryEnv names the program to test. Without it the tests build their own.
const binaryEnv = "ISTHMUS_BINARY"

// asProgram has a test binary behave as the program: see [Itself].
const asProgram = "ISTHMUS_TEST_AS_PROGRAM"

var (
	built  string // the folder of the program that the tests built
	itself bool   // the test binary is the program
)

// Itself has tests start the program that they were compiled with: that of main. TestMain calls
// it before all else.
func Itself(main func(as string)) {
	itself = true
	if as := os.Getenv(asProgram); as != "" {
		main(as)
		os.Exit(0)
	}
}

// As is what makes a test binary the program, or by another word something else.
func As(word string) string { return asProgram + "=" + word }

// Path is where the program to test is.
func Path(t testing.TB) string {
	t.Helper()
	path, err := find()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var find = sync.OnceValues(func() (path string, err error) {
	if itself {
		return os.Executable()
	}
	if path := os.Getenv(binaryEnv); path != "" {
		return path, nil
	}
	if built, err = os.MkdirTemp("", "isthmus-test-"); err != nil {
		return "", err
	}
	path = filepath.Join(built, "isthmus")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/isthmus")
	build.Dir, err = root()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err != nil {
		return "", err
	}
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building isthmus: %w\n%s", err, text)
	}
	// The service's user is to run it.
	return path, os.Chmod(built, 0o755)
})

// Main runs the tests of a role, for its TestMain. Some start the program, or the packaged
// service, which then is this process.
func Main(m *testing.M) (code int) {
	service.Enter()
	defer Remove()
	return testutil.PrivateMounts(m)
}

// Remove removes the program that the tests have built. TestMain calls it at the end.
func Remove() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}

// root is the module's folder, above that of the test.
func root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the test's folder")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// File writes a configuration, and returns where.
func File(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "isthmus.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A Row is a command line with what it is to come to.
type Row struct {
	Args   string
	Status int
	Want   string // a part of what it prints
}

// Commands asks a running isthmus by command lines.
func Commands(t *testing.T, socket string, rows ...Row) {
	t.Helper()
	for _, row := range rows {
		status, out := Call(t, append(strings.Fields(row.Args), "--socket", socket)...)
		if status != row.Status || !strings.Contains(out, row.Want) {
			t.Errorf("isthmus %s: %d, want %d and %q\n%s", row.Args, status, row.Status, row.Want, out)
		}
	}
}

// Call runs the program to its end, and returns all that it printed.
func Call(t testing.TB, args ...string) (status int, out string) {
	t.Helper()
	var text bytes.Buffer
	cmd := exec.Command(Path(t), args...)
	cmd.Env = append(os.Environ(), As("1"))
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), text.String()
}
