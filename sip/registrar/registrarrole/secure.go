// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/isthmus-net/isthmus/internal/config"
)

// secure is what TLS needs; without a certificate none is spoken.
type secure struct {
	certificate *tls.Certificate
	roots       *x509.CertPool // nil: those of the host
}

// maxPEM bounds a file of certificates, in octets.
const maxPEM = 1 << 20

// readSecure reads certificates and key.
func readSecure(s *Settings) (t secure, err error) {
	if s.RootsFile != "" {
		text, err := os.ReadFile(s.RootsFile)
		if err != nil {
			return t, fmt.Errorf("roots_file cannot be read: %w", err)
		}
		t.roots = x509.NewCertPool()
		if !t.roots.AppendCertsFromPEM(text) {
			return t, fmt.Errorf("there is no certificate in %s: name a file in PEM as roots_file", s.RootsFile)
		}
	}
	if s.CertificateFile == "" {
		return t, nil
	}
	certificate, err := os.ReadFile(s.CertificateFile)
	if err != nil {
		return t, fmt.Errorf("certificate_file cannot be read: %w", err)
	}
	private, err := config.ReadPrivate(s.KeyFile, maxPEM)
	if err != nil {
		return t, err
	}
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return t, fmt.Errorf("%s and %s are no certificate with its key in PEM: name files that belong together: %w", s.CertificateFile, s.KeyFile, err)
	}
	t.certificate = &pair
	return t, nil
}

// forTerminals is how connections that come are taken; without a certificate their handshakes fail.
func (t *secure) forTerminals() *tls.Config {
	return &tls.Config{Certificates: t.certificates(), MinVersion: tls.VersionTLS12}
}

// forServers is how a server is called, which proves that it is the one of that name (RFC 5922).
func (t *secure) forServers(name string) *tls.Config {
	return &tls.Config{Certificates: t.certificates(), RootCAs: t.roots, ServerName: name, MinVersion: tls.VersionTLS12}
}

func (t *secure) certificates() []tls.Certificate {
	if t.certificate == nil {
		return nil
	}
	return []tls.Certificate{*t.certificate}
}
