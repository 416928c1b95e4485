// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

const patience = testutil.Patience

// world is a host with a server on it and terminals that have addresses of their own:
//
//	server 2001:db8::5, 192.0.2.5 -- terminals 2001:db8::1 to ::4, 192.0.2.1 to .4
type world struct {
	t   *testing.T
	ns  *testutil.Netns
	dir string
}

const (
	server6, server4 = "2001:db8::5", "192.0.2.5"
	domain           = "example.net"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ns: testutil.NewNetns(t), dir: t.TempDir()}
	w.ns.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for i := 1; i <= 6; i++ {
			for _, text := range []string{fmt.Sprintf("2001:db8::%d/128", i), fmt.Sprintf("192.0.2.%d/32", i)} {
				a, err := netlink.ParseAddr(text)
				if err != nil {
					return err
				}
				a.Flags = unix.IFA_F_NODAD
				if err := netlink.AddrAdd(lo, a); err != nil {
					return err
				}
			}
		}
		return nil
	})
	w.ns.Do(t, func() error {
		for i := 1; i <= 6; i++ {
			testutil.AwaitLocal(t, netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", i)))
		}
		return nil
	})
	w.file("subscribers.toml", subscribers)
	w.certificate()
	return w
}

// subscribers are three with passwords, which are their names, and one with AKA.
const subscribers = `
[[subscriber]]
private_id = "alice"
public_ids = ["sip:alice@example.net"]
password = "alice"
[[subscriber]]
private_id = "bob"
public_ids = ["sip:bob@example.net", "sip:bob@example.org"]
password = "bob"
[[subscriber]]
private_id = "carol"
public_ids = ["sip:carol@example.net"]
password = "carol"
[[subscriber]]
imsi = "001010123456789"
private_id = "sim@example.net"
public_ids = ["sip:sim@example.net"]
k = "465b5ce8b199b49faa5f0a2ee238a6bc"
opc = "cd63cb71954a9f4e48a5994e37a02baf"
sqn = "000000000020"
`

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) file(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// certificate makes one that vouches for itself, of the server and of terminal 2.
func (w *world) certificate() {
	w.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: domain}, DNSNames: []string{domain},
		IPAddresses: []net.IP{net.ParseIP(server6), net.ParseIP(server4), net.ParseIP("2001:db8::2")},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		w.t.Fatal(err)
	}
	w.file("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	w.file("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})))
}

// text is a section with lines of a file, and what tests need for all other keys.
func (w *world) text(lines string) string {
	w.t.Helper()
	var own map[string]any
	if err := toml.Unmarshal([]byte(lines), &own); err != nil {
		w.t.Fatal(err)
	}
	text := "[[registrar]]\n" + lines + "\n"
	for _, k := range [][2]string{
		{"domains", `["example.net", "example.org"]`}, {"listen", `["2001:db8::5", "192.0.2.5"]`}, {"listen_tls", `["2001:db8::5", "192.0.2.5"]`},
		{"certificate_file", fmt.Sprintf("%q", w.path("cert.pem"))}, {"key_file", fmt.Sprintf("%q", w.path("key.pem"))},
		{"subscribers_file", fmt.Sprintf("%q", w.path("subscribers.toml"))}, {"state_file", fmt.Sprintf("%q", w.path("state"))},
	} {
		if _, there := own[k[0]]; !there {
			text += k[0] + " = " + k[1] + "\n"
		}
	}
	return text
}

// settings are those of such a section.
func (w *world) settings(lines string) Settings {
	w.t.Helper()
	return *configtest.One(w.t, Role.Section, w.text(lines)).(*Settings)
}

// server is a running registrar.
type server struct {
	*Registrar
	*roletest.Running
	cfg Settings
}

func (w *world) serve(lines string) *server {
	w.t.Helper()
	cfg := w.settings(lines)
	r, err := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		w.t.Fatal(err)
	}
	return &server{r, roletest.Start(w.t, w.ns, r), cfg}
}

// value is a metric by its name and label.
func (s *server) value(name, label string) float64 {
	found := -1.0
	s.Collect(func(m role.Metric) {
		if m.Name == name && m.Reason+m.Verdict+m.Path == label {
			found = m.Value
		}
	})
	return found
}

// await waits until a metric has a value.
func (s *server) await(t *testing.T, name, label string, want float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s of %s is %v", name, label, want), func() bool { return s.value(name, label) == want })
}

// has is how many bindings an address of record has, as the order lists them.
func (s *server) has(t *testing.T, address string) []Binding {
	t.Helper()
	list, err := s.list(listArguments{Limit: 100, Address: address})
	if err != nil {
		t.Fatal(err)
	}
	return list.Bindings
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// reload has the server take a section with other lines.
func (w *world) reload(s *server, lines string) {
	w.t.Helper()
	next := w.settings(lines)
	roletest.MustReload(w.t, Role, s.Registrar, s.cfg, next)
	s.cfg = next
}

// listen opens a listener of a terminal.
func (w *world) listen(at string) (l net.Listener) {
	w.t.Helper()
	w.ns.Do(w.t, func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	})
	w.t.Cleanup(func() { l.Close() })
	return l
}
