// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnrole"
	"github.com/isthmus-net/isthmus/gprs/sgsn/sgsnrole"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp/media/mediarole"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
	"github.com/isthmus-net/isthmus/teredo/client/clientrole"
	"github.com/isthmus-net/isthmus/teredo/relay/relayrole"
	"github.com/isthmus-net/isthmus/teredo/server/serverrole"
	"github.com/isthmus-net/isthmus/translate/clat/clatrole"
	"github.com/isthmus-net/isthmus/translate/dns64/dns64role"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64role"
	"github.com/isthmus-net/isthmus/translate/siit/siitrole"
)

// roles are the roles of this program.
var roles = role.List{
	clatrole.Role,
	dns64role.Role,
	nat64role.Role,
	sgsnrole.Role,
	siitrole.Role,
	serverrole.Role,
	relayrole.Role,
	clientrole.Role,
	ggsnrole.Role,
	registrarrole.Role,
	mediarole.Role,
}
