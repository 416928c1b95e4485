// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpathtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// WantWords checks that an error or text says all of the words.
func WantWords(t *testing.T, text any, words ...string) {
	t.Helper()
	s := fmt.Sprint(text)
	if text == nil {
		t.Errorf("nothing was said, want words like %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(s, w) {
			t.Errorf("the text %q does not say %q", s, w)
		}
	}
}

// MountBPFFS mounts a BPF file system for the test alone.
func MountBPFFS(t *testing.T) string {
	t.Helper()
	testutil.NeedRoot(t)
	root := t.TempDir()
	if err := unix.Mount("bpf", root, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	})
	return root
}

// Defines fails unless a header defines all of these.
func Defines(t *testing.T, header string, want []string) {
	t.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range want {
		if !strings.Contains(string(text), "#define "+one) {
			t.Errorf("%s does not define %q", header, one)
		}
	}
}

// ObjectsLoad has the verifier take a package's objects of all architectures: they are the same but for
// what keeps loads in order.
func ObjectsLoad(t *testing.T) {
	t.Helper()
	testutil.NeedRoot(t)
	objects, err := filepath.Glob("*_bpfel.o")
	if err != nil || len(objects) < 2 {
		t.Fatalf("%v, %v", objects, err)
	}
	for _, name := range objects {
		spec, err := ebpf.LoadCollectionSpec(name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := ebpf.NewCollection(spec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for program := range all.Programs {
			t.Log(name, program)
		}
		all.Close()
	}
}

// SameRecord fails unless a record of Go has the fields of one that bpf2go made of C, at the
// same places. Of names the case does not matter, as C has none.
func SameRecord(t *testing.T, here, there any) {
	t.Helper()
	if h, c := fields(here), fields(there); !slices.Equal(h, c) {
		t.Errorf("%T is %v, %T is %v", here, h, there, c)
	}
}

// field is one of a record: its name, where it is, and how long.
type field struct {
	name         string
	offset, size uintptr
}

func fields(record any) (list []field) {
	t := reflect.TypeOf(record)
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != "_" && f.Name != "Unused" {
			list = append(list, field{strings.ToLower(f.Name), f.Offset, f.Type.Size()})
		}
	}
	return list
}
