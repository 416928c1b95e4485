// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ftptest tries FTP between Debian's vsftpd, which is given one family alone, and
// Debian's clients, which are given the other.
package ftptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// patience is how long something that is to happen may take.
const patience = testutil.Patience

// Server is vsftpd at work, with a file to be fetched and a folder to be written to.
type Server struct {
	ns   *testutil.Netns
	root string
	// pristine is the content of every file that is carried.
	pristine []byte
	peers    *peers.Peers
}

// fileSize is more than fits into the buffers on the way, and odd.
const fileSize = 3<<20 + 7

// Start runs vsftpd in a namespace until the test ends. Of c, name, root and
// certificate are filled in. It needs root and the peers.
func Start(t *testing.T, ns *testutil.Netns, c peers.Vsftpd) *Server {
	t.Helper()
	testutil.NeedRoot(t)
	found, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	s := &Server{ns: ns, root: filepath.Join(dir, "root"), pristine: make([]byte, fileSize), peers: found}
	rand.Read(s.pristine)
	upload := filepath.Join(s.root, "up")
	fatal(t, os.MkdirAll(upload, 0o755))
	fatal(t, os.Chown(upload, peers.VsftpdUser, peers.VsftpdUser))
	fatal(t, os.WriteFile(filepath.Join(s.root, "file"), s.pristine, 0o644))
	c.Name, c.Root = "vsftpd", s.root
	c.Certificate, c.Key = certify(t, dir)
	command, err := found.Vsftpd(dir, c)
	fatal(t, err)
	cmd := exec.Command(command.Path, command.Args...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.WaitDelay = time.Second // its sessions may hold the output
	ns.Do(t, cmd.Start)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	port := c.Port
	if port == 0 {
		port = 21
	}
	s.await(t, netip.AddrPortFrom(c.Address, port))
	return s
}

// openDir returns a folder of the test that everybody may read.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fatal(t, os.Chmod(filepath.Dir(dir), 0o755))
	fatal(t, os.Chmod(dir, 0o755))
	return dir
}

// await waits until the server listens.
func (s *Server) await(t *testing.T, at netip.AddrPort) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var conn net.Conn
		var err error
		s.ns.Do(t, func() error {
			conn, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
			return nil
		})
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("vsftpd does not listen: %v", err)
		}
	}
}

// certify makes a certificate and its key and returns their files.
func certify(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ftp.example"}, DNSNames: []string{"ftp.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	fatal(t, err)
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	fatal(t, err)
	certificate, key = filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	fatal(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	fatal(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}), 0o600))
	return certificate, key
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
