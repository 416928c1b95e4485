// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// defaultServer is a server as it is where the file says nothing.
func defaultServer() (s ServerSettings) {
	key.SetDefaults(s.keys())
	return s
}
