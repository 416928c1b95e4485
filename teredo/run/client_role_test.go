// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"github.com/isthmus-net/isthmus/internal/config/key"
)

func defaultClient() (s ClientSettings) {
	key.SetDefaults(s.keys())
	return s
}
