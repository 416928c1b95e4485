// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"strings"
)

// Vsftpd is the configuration of Debian's FTP server, for anonymous users who may
// read what is in its folder and write into a folder below.
type Vsftpd struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Address is where it listens, on Port; 0 is 21.
	Address netip.Addr
	Port    uint16
	// Root is the folder that is served. It belongs to root, and is readable by
	// everybody like all folders above it. A folder in it that belongs to
	// [VsftpdUser] can be written to.
	Root string
	// PassiveMin and PassiveMax bound the ports of passive data connections; 0 is
	// any.
	PassiveMin, PassiveMax uint16
	// PassiveAddress is told in place of Address in replies to PASV, if valid.
	PassiveAddress netip.Addr
	// Certificate and Key are files in PEM; with them clients may use TLS.
	Certificate, Key string
}

// VsftpdUser is the number of the user who reads and writes: daemon, who has it
// everywhere. Vsftpd's own account does not exist where its package is only
// unpacked, and it wants one whose home exists.
const VsftpdUser = 1

// Vsftpd writes the configuration below dir and returns the command, which runs
// as root only.
func (p *Peers) Vsftpd(dir string, c Vsftpd) (*Command, error) {
	i, err := p.instance("vsftpd", dir, c.Name)
	if err != nil {
		return nil, err
	}
	empty, err := i.folder(".empty")
	if err != nil {
		return nil, err
	}
	return i.command(c.config(empty), i.at(configured))
}

func (c Vsftpd) config(empty string) string {
	var b strings.Builder
	set := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	if c.Address.Is6() {
		set("listen", "NO")
		set("listen_ipv6", "YES")
		set("listen_address6", c.Address)
	} else {
		set("listen", "YES")
		set("listen_address", c.Address)
	}
	set("background", "NO")
	if c.Port != 0 {
		set("listen_port", c.Port)
	}
	set("ftp_username", "daemon")
	set("chown_username", "daemon")
	set("nopriv_user", "nobody")
	// A prison of system calls made for older kernels would kill it.
	for _, key := range []string{"seccomp_sandbox", "isolate", "isolate_network", "local_enable", "pasv_addr_resolve"} {
		set(key, "NO")
	}
	set("secure_chroot_dir", empty)
	for _, key := range []string{
		"anonymous_enable", "no_anon_password", "write_enable", "anon_upload_enable", "anon_mkdir_write_enable",
		"port_enable", "connect_from_port_20", "pasv_enable",
	} {
		set(key, "YES")
	}
	set("anon_root", c.Root)
	set("anon_umask", "022")
	if c.PassiveMin != 0 {
		set("pasv_min_port", c.PassiveMin)
		set("pasv_max_port", c.PassiveMax)
	}
	if c.PassiveAddress.IsValid() {
		set("pasv_address", c.PassiveAddress)
	}
	if c.Certificate != "" {
		set("ssl_enable", "YES")
		set("allow_anon_ssl", "YES")
		set("require_ssl_reuse", "NO") // not every client resumes the session
		set("ssl_ciphers", "HIGH")
		set("rsa_cert_file", c.Certificate)
		set("rsa_private_key_file", c.Key)
	}
	return b.String()
}
