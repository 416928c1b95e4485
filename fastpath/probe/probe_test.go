// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestProbeAgreesWithTheRelease holds what was found out by trying against what
// is known of mainline releases. Newer features may be ported back, but none may
// be missing.
func TestProbeAgreesWithTheRelease(t *testing.T) {
	testutil.NeedRoot(t)
	f := Try()
	major, minor := kernelVersion(t)
	for _, row := range []struct {
		name         string
		has          bool
		major, minor int
	}{
		{"programs", f.Programs, 5, 8},
		{"XDP", f.XDP, 5, 8},
		{"tc", f.TC, 5, 8},
		{"mapped arrays", f.MappedArrays, 5, 8},
		{"coarse clock", f.CoarseTime, 5, 11},
		{"look-up without neighbour", f.FibNeighbour, 6, 3},
		{"decapsulation in tc", f.DecapFlag, 6, 3},
		{"tcx", f.TCX, 6, 6},
		{"source address of look-up", f.FibSource, 6, 7},
	} {
		since := major > row.major || major == row.major && minor >= row.minor
		if since && !row.has {
			t.Errorf("%s: not found on %s: %q", row.name, f.Kernel, f.Missing)
		}
	}
}

func kernelVersion(t *testing.T) (major, minor int) {
	t.Helper()
	for i, part := range strings.SplitN(release(), ".", 3)[:2] {
		n := 0
		for _, c := range part {
			if c < '0' || c > '9' {
				break
			}
			n = n*10 + int(c-'0')
		}
		if i == 0 {
			major = n
		} else {
			minor = n
		}
	}
	return major, minor
}

// TestProbeTellsUnknownFlags shows that a flag that no kernel has is not found,
// so that a found one means something.
func TestProbeTellsUnknownFlags(t *testing.T) {
	testutil.NeedRoot(t)
	if err := tryFib(1 << 20); !errors.Is(err, errUnknown) {
		t.Errorf("a flag that does not exist gave %v", err)
	}
}

func TestProbeWithoutCapabilities(t *testing.T) {
	testutil.NeedRoot(t)
	found := make(chan Features)
	go func() {
		// The thread gives up its capabilities and ends with the goroutine.
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
		}
		found <- Try()
	}()
	f := <-found
	if f.Programs || f.MappedArrays || len(f.Capabilities) > 0 {
		t.Errorf("a process without capabilities found %+v", f)
	}
	fastpathtest.WantWords(t, strings.Join(f.Missing, " "), "CAP_BPF", "CAP_NET_ADMIN")
}

func TestWordsForWhatIsMissing(t *testing.T) {
	all := Features{
		Kernel: "6.18", Programs: true, XDP: true, TC: true, TCX: true, MappedArrays: true,
		FibSource: true, FibNeighbour: true, DecapFlag: true, CoarseTime: true, JIT: true, BPFFS: "/sys/fs/bpf",
	}
	root := capabilities(^uint64(0))
	if words := all.words(root); len(words) > 0 {
		t.Errorf("with everything there, %q is missing", words)
	}
	for _, row := range []struct {
		name string
		take func(*Features)
		want []string
	}{
		{"no XDP", func(f *Features) { f.XDP = false }, []string{"no XDP", "tc is used"}},
		{"no tc", func(f *Features) { f.TC = false }, []string{"CONFIG_NET_CLS_ACT"}},
		{"no tcx", func(f *Features) { f.TCX = false }, []string{"clsact", "6.6"}},
		{"no mapped arrays", func(f *Features) { f.MappedArrays = false }, []string{"5.5"}},
		{"no source look-up", func(f *Features) { f.FibSource = false }, []string{"bind the instance", "6.7"}},
		{"no decapsulation in tc", func(f *Features) { f.DecapFlag = false }, []string{"take the engine", "XDP", "6.3"}},
		{"no coarse clock", func(f *Features) { f.CoarseTime = false }, []string{"5.11"}},
		{"little locked memory", func(f *Features) { f.locked = errors.New("not permitted") }, []string{"not permitted", "LimitMEMLOCK"}},
		{"no compiler", func(f *Features) { f.JIT = false }, []string{"sysctl -w net.core.bpf_jit_enable=1"}},
		{"no BPF file system", func(f *Features) { f.BPFFS = "" }, []string{"survives", "BPF file system"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := all
			row.take(&f)
			words := f.words(root)
			if len(words) != 1 {
				t.Fatalf("said %q, want one sentence", words)
			}
			fastpathtest.WantWords(t, words[0], row.want...)
		})
	}
	fastpathtest.WantWords(t, all.words(root&^(1<<capNetAdmin)), "CAP_NET_ADMIN")
}

func TestWhyNoPrograms(t *testing.T) {
	bpf := capabilities(1<<capBPF | 1<<capNetAdmin)
	for _, row := range []struct {
		name string
		caps capabilities
		err  error
		want string
	}{
		{"kernel without eBPF", bpf, unix.ENOSYS, "CONFIG_BPF_SYSCALL"},
		{"no capabilities", 0, unix.EPERM, "give it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"},
		{"half of the capabilities", 1 << capBPF, unix.EPERM, "give it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"},
		{"capabilities, yet refused", bpf, unix.EPERM, "sandbox"},
		{"another fault", bpf, unix.ENOMEM, "cannot allocate memory"},
	} {
		t.Run(row.name, func(t *testing.T) { fastpathtest.WantWords(t, whyNoPrograms(row.caps, row.err), row.want) })
	}
}
