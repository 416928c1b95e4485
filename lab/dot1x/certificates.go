// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dot1x

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Kind is a kind of certificate that a terminal may come with.
type Kind string

// The kinds.
const (
	Valid    Kind = "valid"
	Revoked  Kind = "revoked"
	Expired  Kind = "expired"
	Stranger Kind = "stranger" // of another authority
)

// Kinds are all.
var Kinds = []Kind{Valid, Revoked, Expired, Stranger}

// ServerName is whom the server's certificate is for.
const ServerName = "radius.isthmus.test"

// Identity is what a terminal with a certificate calls itself.
func (k Kind) Identity() string {
	if k == Valid {
		return "ue@isthmus.test"
	}
	return string(k) + "@isthmus.test"
}

// Pair are the files of a certificate and of its key.
type Pair struct{ Certificate, Key string }

// Certificates are those of a lab.
type Certificates struct {
	// CA is the file with the authority's certificate; Trust has its list of revoked ones, too.
	CA, Trust string
	Server    Pair
	Terminals map[Kind]Pair
}

// certificateLife is how long certificates are valid, longer than any lab is up.
const certificateLife = 30 * 24 * time.Hour

// authority signs certificates.
type authority struct {
	dir    string
	cert   *x509.Certificate
	key    crypto.Signer
	serial int64
}

// MakeCertificates makes an authority, and the certificates of a server and of terminals, as files of a folder. The
// authority's key is kept nowhere.
func MakeCertificates(dir string) (*Certificates, error) {
	a, err := newAuthority(dir, "ca")
	if err != nil {
		return nil, err
	}
	other, err := newAuthority(dir, "stranger-ca")
	if err != nil {
		return nil, err
	}
	c := &Certificates{CA: filepath.Join(dir, "ca.pem"), Trust: filepath.Join(dir, "trust.pem"), Terminals: map[Kind]Pair{}}
	now := time.Now()
	if c.Server, err = a.issue(ServerName, x509.ExtKeyUsageServerAuth, now.Add(certificateLife)); err != nil {
		return nil, err
	}
	var revoked []x509.RevocationListEntry
	for _, kind := range Kinds {
		by, until := a, now.Add(certificateLife)
		switch kind {
		case Expired:
			until = now.Add(-time.Minute)
		case Stranger:
			by = other
		}
		if c.Terminals[kind], err = by.issue(kind.Identity(), x509.ExtKeyUsageClientAuth, until); err != nil {
			return nil, err
		}
		if kind == Revoked {
			revoked = append(revoked, x509.RevocationListEntry{SerialNumber: big.NewInt(a.serial), RevocationTime: now})
		}
	}
	return c, a.publish(c.Trust, revoked)
}

// newAuthority makes one, whose certificate signs itself.
func newAuthority(dir, name string) (*authority, error) {
	a := &authority{dir: dir, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: name + ".isthmus.test"}, NotAfter: time.Now().Add(certificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	signed, key, err := a.sign(a.cert)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(signed); err != nil {
		return nil, err
	}
	a.key = key
	return a, writePEM(filepath.Join(dir, name+".pem"), 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: signed})
}

// issue makes the certificate of a name, for one use (RFC 5216 section 5.3).
func (a *authority) issue(name string, use x509.ExtKeyUsage, until time.Time) (Pair, error) {
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	if use == x509.ExtKeyUsageServerAuth {
		cert.DNSNames = []string{name}
	}
	signed, key, err := a.sign(cert)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	p := Pair{filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")}
	return p, errors.Join(
		writePEM(p.Certificate, 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: signed}),
		writePEM(p.Key, 0o600, &pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// sign signs a certificate, for a key that it makes; an authority without one signs with that.
func (a *authority) sign(cert *x509.Certificate) ([]byte, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	by := a.key
	if by == nil {
		by = key
	}
	a.serial++
	cert.SerialNumber, cert.NotBefore = big.NewInt(a.serial), time.Now().Add(-time.Hour)
	signed, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), by)
	return signed, key, err
}

// publish writes the authority's certificate with its list of revoked ones (RFC 5280 section 5).
func (a *authority) publish(file string, revoked []x509.RevocationListEntry) error {
	list, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(certificateLife), RevokedCertificateEntries: revoked,
	}, a.cert, a.key)
	if err != nil {
		return err
	}
	return writePEM(file, 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}, &pem.Block{Type: "X509 CRL", Bytes: list})
}

func writePEM(file string, mode os.FileMode, blocks ...*pem.Block) error {
	var text []byte
	for _, b := range blocks {
		text = append(text, pem.EncodeToMemory(b)...)
	}
	if err := os.WriteFile(file, text, mode); err != nil {
		return fmt.Errorf("a certificate cannot be written: %w", err)
	}
	return nil
}
