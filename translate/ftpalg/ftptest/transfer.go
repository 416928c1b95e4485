// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Transfer is one way to carry a file to the client and another one back.
type Transfer struct {
	// Program is the client.
	Program string
	// Active transfers are opened by the server (EPRT), others by the client (EPSV).
	Active bool
	// Old has curl say PORT and PASV, as others do by themselves where they have IPv4.
	Old bool
	// TLS protects control and data connections from AUTH on, which the gateway does
	// not see into.
	TLS bool
}

// String names the transfer.
func (x Transfer) String() string {
	name := x.Program + " passive"
	if x.Active {
		name = x.Program + " active"
	}
	if x.Old {
		name += " by old commands"
	}
	if x.TLS {
		name += " with TLS"
	}
	return name
}

// Transfers are all ways that work through a gateway. An active transfer with TLS
// does not: what says where to is not to be seen (RFC 6384 section 14).
func Transfers() []Transfer {
	return []Transfer{
		{Program: "curl"}, {Program: "curl", Active: true}, {Program: "curl", TLS: true},
		{Program: "lftp"}, {Program: "lftp", Active: true}, {Program: "lftp", TLS: true},
		{Program: "tnftp"}, {Program: "tnftp", Active: true},
	}
}

// Calls are the ways of clients that have IPv4. Behind AUTH TLS the gateway cannot make the
// server's port reachable.
func Calls() []Transfer {
	return []Transfer{
		{Program: "curl"}, {Program: "curl", Active: true}, {Program: "curl", Old: true}, {Program: "curl", Active: true, Old: true},
		{Program: "lftp"}, {Program: "lftp", Active: true}, {Program: "tnftp"}, {Program: "tnftp", Active: true},
	}
}

// Try carries a file each way with a client in a namespace, which calls the server
// by an address, and compares what arrives.
func (s *Server) Try(t *testing.T, ns *testutil.Netns, at netip.AddrPort, x Transfer) {
	t.Helper()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	stored := filepath.Join(s.root, "up", fmt.Sprintf("of-%d", at.Port()))
	fatal(t, os.WriteFile(from, s.pristine, 0o600))
	if err := os.Remove(stored); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, args := range x.commands(at.String(), from, to, filepath.Base(stored)) {
		s.run(t, ns, dir, x.Program, args)
	}
	for what, file := range map[string]string{"fetched": to, "stored": stored} {
		got, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, s.pristine) {
			t.Errorf("what was %s has %d bytes and differs, of %d (%v)", what, len(got), len(s.pristine), err)
		}
	}
}

// run runs a client to its end.
func (s *Server) run(t *testing.T, ns *testutil.Netns, home, program string, args []string) {
	t.Helper()
	path, err := s.peers.Program(program)
	fatal(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.Stdout, cmd.Stderr = &output, &output
	ns.Do(t, cmd.Start)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, output.Bytes())
	}
}

// commands are the arguments of the client's runs, which fetch a file and store one.
func (x Transfer) commands(host, from, to, name string) [][]string {
	fetch, store := "ftp://"+host+"/file", "ftp://"+host+"/up/"+name
	switch x.Program {
	case "curl":
		common := []string{"-sS", "-v"}
		if x.Active {
			common = append(common, "--ftp-port", "-")
		}
		if x.Old {
			common = append(common, "--disable-epsv", "--disable-eprt")
		}
		if x.TLS {
			common = append(common, "--ssl-reqd", "--insecure")
		}
		return [][]string{append(slices.Clip(common), "-o", to, fetch), append(slices.Clip(common), "-T", from, store)}
	case "lftp":
		mode := "set net:max-retries 1; set net:timeout 60; set ftp:passive-mode " + yes(!x.Active)
		if x.TLS {
			mode += "; set ftp:ssl-force yes; set ftp:ssl-allow-anonymous yes; set ftp:ssl-protect-data yes; set ssl:verify-certificate no"
		} else {
			mode += "; set ftp:ssl-allow no"
		}
		return [][]string{{"-d", "-c", fmt.Sprintf("%s; open ftp://%s && get file -o %s && put %s -o up/%s", mode, host, to, from, name)}}
	default:
		mode := "-p"
		if x.Active {
			mode = "-A"
		}
		return [][]string{{mode, "-d", "-o", to, fetch}, {mode, "-d", "-u", store, from}}
	}
}

func yes(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}
