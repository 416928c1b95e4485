// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// aptGet stands in for the package manager: its update succeeds, unless told otherwise,
// whether or not there is a network to read a list from.
const aptGet = `#!/bin/sh
case "$*" in
*update)
	lists=$(sed -n 's/^Dir::State::lists "\(.*\)";/\1/p' "$APT_CONFIG")
	[ ! -e "$NETWORK" ] || exec touch "$lists/release_Packages"
	echo 'W: Some index files failed to download.'
	case "$*" in *APT::Update::Error-Mode=any*) exit 100 ;; esac
	;;
*install*) echo "'http://192.0.2.1/wget.deb' wget.deb 1 SHA256:0" ;;
esac
`

// A run without a network fails, and the next one with a network does not.
func TestPackageListsAreReadWhenTheNetworkIsBack(t *testing.T) {
	root := t.TempDir()
	network := filepath.Join(root, "network")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, script := range []string{"peers", "debian"} {
		text, err := os.ReadFile(filepath.Join("../../scripts", script))
		if err != nil {
			t.Fatal(err)
		}
		write("scripts/"+script, string(text))
	}
	write("bin/apt-get", aptGet)
	write("bin/apt-config", "#!/bin/sh\n")
	write("bin/apt-cache", "#!/bin/sh\n")
	write("bin/dpkg", "#!/bin/sh\necho amd64\n")
	write("bin/dpkg-deb", "#!/bin/sh\n")
	list := func() (string, error) {
		cmd := exec.Command("scripts/peers", "--list", "debootstrap")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"), "NETWORK="+network)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	if out, err := list(); err == nil {
		t.Errorf("without a network it succeeds and says %q", out)
	}
	write("network", "")
	if out, err := list(); err != nil {
		t.Errorf("with a network again: %v: %s", err, out)
	}
}
