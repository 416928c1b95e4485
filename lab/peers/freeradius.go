// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// FreeRADIUS is the configuration of FreeRADIUS as a server that authenticates, and may account. It
// needs root.
type FreeRADIUS struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Listen is where it is asked.
	Listen netip.AddrPort
	// Detail is the file of what it is told by accounting, at port 1813 of that address (rlm_detail(5));
	// empty: it is told nothing.
	Detail string
	// Client may ask, by Secret, and so may Others.
	Client netip.Addr
	Others []netip.Addr
	Secret string
	// Answers are signed, as releases since 3.2.5 do unasked (CVE-2024-3596).
	//
	// Users are the lines of its file of users (users(5)).
	Users string
	// Silent has it say nothing of each request, and use several threads: for many of them.
	Silent bool
	// TLS has it authenticate by EAP-TLS, too (RFC 5216); nil: it does not.
	TLS *RADIUSTLS
}

// RADIUSTLS are the files of a server that authenticates by EAP-TLS.
type RADIUSTLS struct {
	// CA holds the certificate of who signs terminals' certificates, and its list of those that are revoked.
	CA, Certificate, Key string
}

// FreeRADIUS writes the configuration below dir and returns the command, which says "Ready to
// process requests" when it is.
func (p *Peers) FreeRADIUS(dir string, c FreeRADIUS) (*Command, error) {
	i, err := p.instance("freeradius", dir, c.Name)
	if err != nil {
		return nil, err
	}
	modules, err := filepath.Glob(filepath.Join(p.Dir, "root/usr/lib/freeradius"))
	if err != nil || len(modules) != 1 {
		return nil, fmt.Errorf("the modules of FreeRADIUS are not in %s: %w", p.Dir, ErrMissing)
	}
	etc, err := i.folder(".etc")
	if err != nil {
		return nil, err
	}
	users := instance{name: "users", dir: etc}
	if err := users.write("", c.Users); err != nil {
		return nil, err
	}
	server := instance{name: "radiusd", dir: etc}
	if err := server.write(".conf", c.config(etc)); err != nil {
		return nil, err
	}
	command := &Command{Path: i.path, Args: []string{"-f", "-l", "stdout", "-d", etc, "-D", "/usr/share/freeradius"}}
	if !c.Silent {
		command.Args = append(command.Args, "-X")
	}
	return command, nil
}

func (c FreeRADIUS) config(etc string) string {
	var clients strings.Builder
	for i, at := range append([]netip.Addr{c.Client}, c.Others...) {
		fmt.Fprintf(&clients, "client client%d {\n\t%s = %v\n\tsecret = %q\n\trequire_message_authenticator = yes\n}\n", i, addressKey(at), at, c.Secret)
	}
	var module, authorize, authenticate string
	if c.TLS != nil {
		module, authorize, authenticate = c.TLS.module(), "\t\teap {\n\t\t\tok = return\n\t\t}\n", "\t\teap\n"
	}
	accounting := ""
	if c.Detail != "" {
		module, accounting = module+detailConfig, accountingConfig
	}
	text := strings.NewReplacer("@modules", module, "@accounting", accounting, "@authorize", authorize, "@authenticate", authenticate).Replace(freeRADIUSConfig)
	return strings.NewReplacer("@etc", etc, "@listen", addressKey(c.Listen.Addr()), "@address", c.Listen.Addr().String(), "@port", fmt.Sprint(c.Listen.Port()),
		"@clients", clients.String(), "@detail", c.Detail).Replace(text)
}

const freeRADIUSConfig = `
prefix = /usr
logdir = @etc
run_dir = @etc
raddbdir = @etc
libdir = /usr/lib/freeradius
pidfile = @etc/pid
max_requests = 65536
cleanup_delay = 2
security {
	allow_core_dumps = no
	reject_delay = 0
}
thread pool {
}
@clients
modules {
@modules
	files {
		filename = @etc/users
	}
	pap {
	}
	chap {
	}
}
server default {
	listen {
		type = auth
		@listen = @address
		port = @port
	}
	authorize {
@authorize
		chap
		files
		pap
	}
	authenticate {
@authenticate
		Auth-Type PAP {
			pap
		}
		Auth-Type CHAP {
			chap
		}
	}
	post-auth {
		update reply {
			Message-Authenticator := 0x00
		}
		Post-Auth-Type REJECT {
			update reply {
				Message-Authenticator := 0x00
			}
		}
	}
	@accounting
}
`

// addressKey is the key that an address of its family stands behind.
func addressKey(a netip.Addr) string {
	if a.Is6() {
		return "ipv6addr"
	}
	return "ipaddr"
}

// module is the module of EAP. A terminal has the name that its certificate is for, and no other.
func (c *RADIUSTLS) module() string {
	return fmt.Sprintf(`	eap {
		default_eap_type = tls
		timer_expire = 60
		max_sessions = 1024
		tls-config tls {
			private_key_file = %q
			certificate_file = %q
			ca_file = %q
			check_crl = yes
			check_cert_cn = %%{User-Name}
			tls_min_version = "1.2"
			tls_max_version = "1.2"
		}
		tls {
			tls = tls
		}
	}
`, c.Key, c.Certificate, c.CA)
}

// detailConfig and accountingConfig have accounting written down, before it is acknowledged.
const (
	detailConfig = `	detail {
		filename = "@detail"
		header = "%t"
		locking = no
	}
`
	accountingConfig = `listen {
		type = acct
		@listen = @address
		port = 1813
	}
	accounting {
		detail
	}
`
)
