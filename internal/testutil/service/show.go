// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// view is the root of a file system that is being put together.
type view struct {
	root string
	err  error // the first
}

// show gives the process the view of the machine that the unit leaves it.
func (j *job) show() error {
	s := j.Sandbox
	v := &view{root: at(j.Machine, "root")}
	v.do("private mounts", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") })
	v.mount("tmpfs", "/", "mode=0755")
	v.system()
	v.folder(filepath.Dir(s.Exec[0]), 0o755)
	v.mount("tmpfs", filepath.Dir(s.Exec[0]), "mode=0755")
	v.file(s.Exec[0])
	v.bind(j.Program, s.Exec[0])
	for _, name := range []string{"etc", "run", "var"} {
		v.folder("/"+name, 0o755)
		v.bind(at(j.Machine, name), "/"+name)
	}
	for _, name := range []string{"/dev", "/proc", "/sys", "/tmp", "/root", "/home"} {
		v.folder(name, 0o755)
	}
	if s.Home {
		for _, name := range []string{"/root", "/home", "/run/user"} {
			v.mount("tmpfs", name, "mode=0000")
		}
	}
	if s.Modules {
		v.hide("/usr/lib/modules")
	}
	if s.ReadOnly {
		v.readOnly("/")
	}
	v.devices(s.Devices)
	v.kernel(j)
	v.writable(j)
	v.do("a root of its own", func() error {
		if err := unix.Chdir(v.root); err != nil {
			return err
		}
		if err := unix.PivotRoot(".", "."); err != nil {
			return err
		}
		return errors.Join(unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/"))
	})
	return v.err
}

// system shows the libraries of the machine, which a test program may be linked with.
func (v *view) system() {
	for _, name := range []string{"/usr", "/bin", "/lib", "/lib32", "/lib64", "/sbin"} {
		info, err := os.Lstat(name)
		switch {
		case err != nil:
		case info.Mode()&fs.ModeSymlink != 0:
			v.do(name, func() error {
				to, err := os.Readlink(name)
				return errors.Join(err, os.Symlink(to, at(v.root, name)))
			})
		default:
			v.folder(name, 0o755)
			v.bind(name, name)
		}
	}
}

// devices makes a bare /dev.
func (v *view) devices(more []string) {
	v.mount("tmpfs", "/dev", "mode=0755")
	numbers := map[string][2]uint32{
		"/dev/null": {1, 3}, "/dev/zero": {1, 5}, "/dev/full": {1, 7}, "/dev/random": {1, 8}, "/dev/urandom": {1, 9}, "/dev/net/tun": {10, 200},
	}
	for _, name := range append([]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}, more...) {
		number, known := numbers[name]
		v.folder(filepath.Dir(name), 0o755)
		v.do(name, func() error {
			if !known {
				return errors.New("a device of unknown number")
			}
			path := at(v.root, name)
			return errors.Join(unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))), os.Chmod(path, 0o666))
		})
	}
}

// kernel shows the kernel's own file systems.
func (v *view) kernel(j *job) {
	s := j.Sandbox
	options := ""
	if s.Processes {
		options = "hidepid=2" // invisible
	}
	v.mount("proc", "/proc", options)
	v.mount("sysfs", "/sys", "")
	v.bind(at(j.Machine, "bpf"), "/sys/fs/bpf")
	if s.Tunables {
		for _, name := range []string{"acpi", "apm", "asound", "bus", "fs", "irq", "latency_stats", "mtrr", "scsi", "sys", "sysrq-trigger", "timer_stats"} {
			v.readOnly("/proc/" + name)
		}
		v.readOnly("/sys")
		v.hide("/proc/kallsyms")
		v.hide("/proc/kcore")
	}
	if s.ControlGroups {
		v.readOnly("/sys/fs/cgroup")
	}
	if s.KernelLogs {
		v.hide("/proc/kmsg")
	}
}

// writable shows what the service may write.
func (v *view) writable(j *job) {
	s := j.Sandbox
	if s.OwnTmp {
		v.mount("tmpfs", "/tmp", "mode=1777")
	}
	for parent, f := range map[string]Folder{"run": s.Runtime, "var/lib": s.State, "etc": s.Configuration} {
		if f.Name != "" {
			v.bind(at(j.Machine, parent, f.Name), at("/", parent, f.Name))
		}
	}
	for _, b := range s.Binds {
		from := at(j.Machine, "bpf", strings.TrimPrefix(b.From, "/sys/fs/bpf"))
		if _, err := os.Stat(from); b.Optional && err != nil {
			continue
		}
		v.folder(b.To, 0o755)
		v.bind(from, b.To)
	}
}

func (v *view) do(what string, f func() error) {
	if v.err != nil {
		return
	}
	if err := f(); err != nil {
		v.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (v *view) folder(name string, mode os.FileMode) {
	v.do(name, func() error { return os.MkdirAll(at(v.root, name), mode) })
}

func (v *view) file(name string) {
	v.do(name, func() error { return os.WriteFile(at(v.root, name), nil, 0o755) })
}

func (v *view) mount(kind, name, options string) {
	v.do(name, func() error { return unix.Mount(kind, at(v.root, name), kind, 0, options) })
}

func (v *view) bind(from, to string) {
	v.do(to, func() error { return unix.Mount(from, at(v.root, to), "", unix.MS_BIND, "") })
}

// readOnly makes something unwritable, with all below it.
func (v *view) readOnly(name string) {
	path := at(v.root, name)
	if _, err := os.Lstat(path); err != nil {
		return
	}
	v.do(name, func() error {
		if name != "/" {
			if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return err
			}
		}
		return unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	})
}

// hide puts something that cannot be opened in the place of a file or folder.
func (v *view) hide(name string) {
	path := at(v.root, name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		v.mount("tmpfs", name, "mode=0000")
	default:
		const nothing = "/nothing"
		if _, err := os.Lstat(at(v.root, "dev", nothing)); err != nil {
			v.do(nothing, func() error { return os.WriteFile(at(v.root, "dev", nothing), nil, 0) })
		}
		v.bind(at(v.root, "dev", nothing), name)
	}
}
