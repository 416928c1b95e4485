// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"strings"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/teredo"
)

// maxSecret bounds a file that holds one secret, in bytes.
const maxSecret = 4096

// ReadSecret reads a private file that holds one secret and, it may be, a line end.
func ReadSecret(path string) (config.Secret, error) {
	text, err := config.ReadPrivate(path, maxSecret)
	if err != nil {
		return "", err
	}
	s, f := Secret(strings.TrimRight(string(text), "\r\n"))
	if f != nil {
		return "", fmt.Errorf("%s: %s: %s", path, f.Problem, f.Remedy)
	}
	return s, nil
}

// ClientID parses a client identifier (RFC 4380, section 5.1.1).
var ClientID = key.Text("north", func(s string) (string, *key.Fault) {
	if s == "" || len(s) > teredo.MaxClientIDLen {
		return "", key.Wrong(fmt.Sprintf("write a name of 1 to %d bytes, like north", teredo.MaxClientIDLen), "a name of %d bytes cannot be sent", len(s))
	}
	return s, nil
})

// Secret parses a shared secret: its bytes are those of the text.
var Secret = key.Text("…", func(s string) (config.Secret, *key.Fault) {
	if len(s) < teredo.MinSecretLen {
		return "", key.Wrong("make one with: openssl rand -base64 24", "a secret of %d bytes can be guessed: %d are the least", len(s), teredo.MinSecretLen)
	}
	return config.Secret(s), nil
})

// Algorithm parses the name of one.
var Algorithm = key.Text(teredo.HMACSHA1.String(), func(s string) (teredo.Algorithm, *key.Fault) {
	for _, a := range []teredo.Algorithm{teredo.HMACSHA1, teredo.HMACSHA256} {
		if s == a.String() {
			return a, nil
		}
	}
	return 0, key.Wrong(fmt.Sprintf("write %q or %q", teredo.HMACSHA1, teredo.HMACSHA256), "%q is not known here", s)
})
