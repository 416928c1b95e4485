// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// ElementType is the first octet of an information element (TS 29.060 section 7.7, TS
// 09.60 section 7.9).
type ElementType uint8

// Elements of fixed length, which is in [fixedLen]. Version 0 has flow labels where
// version 1 has TEIDs.
const (
	ElementCause                   ElementType = 1
	ElementIMSI                    ElementType = 2
	ElementRAI                     ElementType = 3
	ElementTLLI                    ElementType = 4
	ElementPTMSI                   ElementType = 5
	ElementQoSV0                   ElementType = 6
	ElementReordering              ElementType = 8
	ElementAuthenticationTriplet   ElementType = 9
	ElementMAPCause                ElementType = 11
	ElementPTMSISignature          ElementType = 12
	ElementMSValidated             ElementType = 13
	ElementRecovery                ElementType = 14
	ElementSelectionMode           ElementType = 15
	ElementTEIDData                ElementType = 16
	ElementTEIDControl             ElementType = 17
	ElementTEIDDataII              ElementType = 18
	ElementTeardown                ElementType = 19
	ElementNSAPI                   ElementType = 20
	ElementRANAPCause              ElementType = 21
	ElementRABContext              ElementType = 22
	ElementRadioPrioritySMS        ElementType = 23
	ElementRadioPriority           ElementType = 24
	ElementPacketFlowID            ElementType = 25
	ElementChargingCharacteristics ElementType = 26
	ElementTraceReference          ElementType = 27
	ElementTraceType               ElementType = 28
	ElementMSNotReachable          ElementType = 29
	ElementPacketTransferCommand   ElementType = 126
	ElementChargingID              ElementType = 127
)

// Elements with a length of their own.
const (
	ElementEndUserAddress           ElementType = 128
	ElementMMContext                ElementType = 129
	ElementPDPContext               ElementType = 130
	ElementAPN                      ElementType = 131
	ElementPCO                      ElementType = 132
	ElementGSNAddress               ElementType = 133
	ElementMSISDN                   ElementType = 134
	ElementQoS                      ElementType = 135
	ElementAuthenticationQuintuplet ElementType = 136
	ElementTFT                      ElementType = 137
	ElementTargetID                 ElementType = 138
	ElementUTRANContainer           ElementType = 139
	ElementRABSetup                 ElementType = 140
	ElementExtensionList            ElementType = 141
	ElementTriggerID                ElementType = 142
	ElementOMCIdentity              ElementType = 143
	ElementRANContainer             ElementType = 144
	ElementPDPPrioritization        ElementType = 145
	ElementAdditionalRABSetup       ElementType = 146
	ElementSGSNNumber               ElementType = 147
	ElementCommonFlags              ElementType = 148
	ElementAPNRestriction           ElementType = 149
	ElementRadioPriorityLCS         ElementType = 150
	ElementRATType                  ElementType = 151
	ElementLocation                 ElementType = 152
	ElementTimeZone                 ElementType = 153
	ElementIMEI                     ElementType = 154
	ElementCAMELContainer           ElementType = 155
	ElementMBMSUEContext            ElementType = 156
	ElementTMGI                     ElementType = 157
	ElementRIMRoutingAddress        ElementType = 158
	ElementMBMSPCO                  ElementType = 159
	ElementMBMSServiceArea          ElementType = 160
	ElementSourceRNCContext         ElementType = 161
	ElementAdditionalTrace          ElementType = 162
	ElementHopCounter               ElementType = 163
	ElementSelectedPLMN             ElementType = 164
	ElementMBMSSessionID            ElementType = 165
	ElementMBMSIndicator            ElementType = 166
	ElementEnhancedNSAPI            ElementType = 167
	ElementMBMSSessionDuration      ElementType = 168
	ElementAdditionalMBMSTrace      ElementType = 169
	ElementMBMSRepetition           ElementType = 170
	ElementMBMSTimeToTransfer       ElementType = 171
	ElementPSHandover               ElementType = 172
	ElementBSSContainer             ElementType = 173
	ElementCellIdentification       ElementType = 174
	ElementPDUNumbers               ElementType = 175
	ElementBSSGPCause               ElementType = 176
	ElementMBMSBearerCapabilities   ElementType = 177
	ElementRIMDiscriminator         ElementType = 178
	ElementSetupPFCs                ElementType = 179
	ElementPSHandoverXID            ElementType = 180
	ElementInfoChangeAction         ElementType = 181
	ElementDirectTunnelFlags        ElementType = 182
	ElementCorrelationID            ElementType = 183
	ElementBearerControlMode        ElementType = 184
	ElementMBMSFlow                 ElementType = 185
	ElementMBMSDistribution         ElementType = 186
	ElementMBMSDistributionAck      ElementType = 187
	ElementInterRATHandover         ElementType = 188
	ElementRFSPIndex                ElementType = 189
	ElementFQDN                     ElementType = 190
	ElementEvolvedARP               ElementType = 191
	ElementEvolvedARPII             ElementType = 192
	ElementExtendedFlags            ElementType = 193
	ElementUserCSG                  ElementType = 194
	ElementCSGReporting             ElementType = 195
	ElementCSGID                    ElementType = 196
	ElementCSGMembership            ElementType = 197
	ElementAMBR                     ElementType = 198
	ElementUENetworkCapability      ElementType = 199
	ElementUEAMBR                   ElementType = 200
	ElementAMBRWithNSAPI            ElementType = 201
	ElementBackOffTime              ElementType = 202
	ElementSignallingPriority       ElementType = 203
	ElementSignallingPriorityNSAPI  ElementType = 204
	ElementHigherBitRates           ElementType = 205
	ElementMaxMBR                   ElementType = 206
	ElementAdditionalMMContext      ElementType = 207
	ElementAdditionalSRVCCFlags     ElementType = 208
	ElementSTNSR                    ElementType = 209
	ElementCMSISDN                  ElementType = 210
	ElementExtendedRANAPCause       ElementType = 211
	ElementENodeBID                 ElementType = 212
	ElementSelectionModeNSAPI       ElementType = 213
	ElementLocationTime             ElementType = 214
	ElementLocalHomeNetwork         ElementType = 215
	ElementOperatorSelection        ElementType = 216
	ElementUEUsageType              ElementType = 217
	ElementExtendedFlagsII          ElementType = 218
	ElementNodeIdentifier           ElementType = 219
	ElementCIoTSupport              ElementType = 220
	ElementSCEFConnection           ElementType = 221
	ElementIOVUpdates               ElementType = 222
	ElementMappedUEUsageType        ElementType = 223
	ElementUserPlaneSelection       ElementType = 224
	ElementTypeExtension            ElementType = 238
	ElementReleasedPackets          ElementType = 249
	ElementCancelledPackets         ElementType = 250
	ElementChargingGateway          ElementType = 251
	ElementDataRecord               ElementType = 252
	ElementRequestsResponded        ElementType = 253
	ElementRecommendedNode          ElementType = 254
	ElementPrivateExtension         ElementType = 255
)

var elementNames = [256]string{
	ElementCause:                    "Cause",
	ElementIMSI:                     "IMSI",
	ElementRAI:                      "Routeing Area Identity",
	ElementTLLI:                     "TLLI",
	ElementPTMSI:                    "P-TMSI",
	ElementQoSV0:                    "QoS Profile (version 0)",
	ElementReordering:               "Reordering Required",
	ElementAuthenticationTriplet:    "Authentication Triplet",
	ElementMAPCause:                 "MAP Cause",
	ElementPTMSISignature:           "P-TMSI Signature",
	ElementMSValidated:              "MS Validated",
	ElementRecovery:                 "Recovery",
	ElementSelectionMode:            "Selection Mode",
	ElementTEIDData:                 "TEID Data I",
	ElementTEIDControl:              "TEID Control Plane",
	ElementTEIDDataII:               "TEID Data II",
	ElementTeardown:                 "Teardown Ind",
	ElementNSAPI:                    "NSAPI",
	ElementRANAPCause:               "RANAP Cause",
	ElementRABContext:               "RAB Context",
	ElementRadioPrioritySMS:         "Radio Priority SMS",
	ElementRadioPriority:            "Radio Priority",
	ElementPacketFlowID:             "Packet Flow ID",
	ElementChargingCharacteristics:  "Charging Characteristics",
	ElementTraceReference:           "Trace Reference",
	ElementTraceType:                "Trace Type",
	ElementMSNotReachable:           "MS Not Reachable Reason",
	ElementPacketTransferCommand:    "Packet Transfer Command",
	ElementChargingID:               "Charging ID",
	ElementEndUserAddress:           "End User Address",
	ElementMMContext:                "MM Context",
	ElementPDPContext:               "PDP Context",
	ElementAPN:                      "Access Point Name",
	ElementPCO:                      "Protocol Configuration Options",
	ElementGSNAddress:               "GSN Address",
	ElementMSISDN:                   "MSISDN",
	ElementQoS:                      "QoS Profile",
	ElementAuthenticationQuintuplet: "Authentication Quintuplet",
	ElementTFT:                      "Traffic Flow Template",
	ElementTargetID:                 "Target Identification",
	ElementUTRANContainer:           "UTRAN Transparent Container",
	ElementRABSetup:                 "RAB Setup Information",
	ElementExtensionList:            "Extension Header Type List",
	ElementTriggerID:                "Trigger Id",
	ElementOMCIdentity:              "OMC Identity",
	ElementRANContainer:             "RAN Transparent Container",
	ElementPDPPrioritization:        "PDP Context Prioritization",
	ElementAdditionalRABSetup:       "Additional RAB Setup Information",
	ElementSGSNNumber:               "SGSN Number",
	ElementCommonFlags:              "Common Flags",
	ElementAPNRestriction:           "APN Restriction",
	ElementRadioPriorityLCS:         "Radio Priority LCS",
	ElementRATType:                  "RAT Type",
	ElementLocation:                 "User Location Information",
	ElementTimeZone:                 "MS Time Zone",
	ElementIMEI:                     "IMEI(SV)",
	ElementCAMELContainer:           "CAMEL Charging Information Container",
	ElementMBMSUEContext:            "MBMS UE Context",
	ElementTMGI:                     "Temporary Mobile Group Identity",
	ElementRIMRoutingAddress:        "RIM Routing Address",
	ElementMBMSPCO:                  "MBMS Protocol Configuration Options",
	ElementMBMSServiceArea:          "MBMS Service Area",
	ElementSourceRNCContext:         "Source RNC PDCP Context Info",
	ElementAdditionalTrace:          "Additional Trace Info",
	ElementHopCounter:               "Hop Counter",
	ElementSelectedPLMN:             "Selected PLMN ID",
	ElementMBMSSessionID:            "MBMS Session Identifier",
	ElementMBMSIndicator:            "MBMS 2G/3G Indicator",
	ElementEnhancedNSAPI:            "Enhanced NSAPI",
	ElementMBMSSessionDuration:      "MBMS Session Duration",
	ElementAdditionalMBMSTrace:      "Additional MBMS Trace Info",
	ElementMBMSRepetition:           "MBMS Session Repetition Number",
	ElementMBMSTimeToTransfer:       "MBMS Time To Data Transfer",
	ElementPSHandover:               "PS Handover Request Context",
	ElementBSSContainer:             "BSS Container",
	ElementCellIdentification:       "Cell Identification",
	ElementPDUNumbers:               "PDU Numbers",
	ElementBSSGPCause:               "BSSGP Cause",
	ElementMBMSBearerCapabilities:   "Required MBMS Bearer Capabilities",
	ElementRIMDiscriminator:         "RIM Routing Address Discriminator",
	ElementSetupPFCs:                "List of Set-up PFCs",
	ElementPSHandoverXID:            "PS Handover XID Parameters",
	ElementInfoChangeAction:         "MS Info Change Reporting Action",
	ElementDirectTunnelFlags:        "Direct Tunnel Flags",
	ElementCorrelationID:            "Correlation-ID",
	ElementBearerControlMode:        "Bearer Control Mode",
	ElementMBMSFlow:                 "MBMS Flow Identifier",
	ElementMBMSDistribution:         "MBMS IP Multicast Distribution",
	ElementMBMSDistributionAck:      "MBMS Distribution Acknowledgement",
	ElementInterRATHandover:         "Reliable INTER RAT HANDOVER INFO",
	ElementRFSPIndex:                "RFSP Index",
	ElementFQDN:                     "Fully Qualified Domain Name",
	ElementEvolvedARP:               "Evolved Allocation/Retention Priority I",
	ElementEvolvedARPII:             "Evolved Allocation/Retention Priority II",
	ElementExtendedFlags:            "Extended Common Flags",
	ElementUserCSG:                  "User CSG Information",
	ElementCSGReporting:             "CSG Information Reporting Action",
	ElementCSGID:                    "CSG ID",
	ElementCSGMembership:            "CSG Membership Indication",
	ElementAMBR:                     "Aggregate Maximum Bit Rate",
	ElementUENetworkCapability:      "UE Network Capability",
	ElementUEAMBR:                   "UE-AMBR",
	ElementAMBRWithNSAPI:            "APN-AMBR with NSAPI",
	ElementBackOffTime:              "GGSN Back-Off Time",
	ElementSignallingPriority:       "Signalling Priority Indication",
	ElementSignallingPriorityNSAPI:  "Signalling Priority Indication with NSAPI",
	ElementHigherBitRates:           "Higher Bitrates than 16 Mbps Flag",
	ElementMaxMBR:                   "Max MBR/APN-AMBR",
	ElementAdditionalMMContext:      "Additional MM Context for SRVCC",
	ElementAdditionalSRVCCFlags:     "Additional Flags for SRVCC",
	ElementSTNSR:                    "STN-SR",
	ElementCMSISDN:                  "C-MSISDN",
	ElementExtendedRANAPCause:       "Extended RANAP Cause",
	ElementENodeBID:                 "eNodeB ID",
	ElementSelectionModeNSAPI:       "Selection Mode with NSAPI",
	ElementLocationTime:             "ULI Timestamp",
	ElementLocalHomeNetwork:         "LHN-ID with NSAPI",
	ElementOperatorSelection:        "CN Operator Selection Entity",
	ElementUEUsageType:              "UE Usage Type",
	ElementExtendedFlagsII:          "Extended Common Flags II",
	ElementNodeIdentifier:           "Node Identifier",
	ElementCIoTSupport:              "CIoT Optimizations Support Indication",
	ElementSCEFConnection:           "SCEF PDN Connection",
	ElementIOVUpdates:               "IOV Updates Counter",
	ElementMappedUEUsageType:        "Mapped UE Usage Type",
	ElementUserPlaneSelection:       "UP Function Selection Indication Flags",
	ElementTypeExtension:            "Type Extension",
	ElementReleasedPackets:          "Sequence Numbers of Released Packets",
	ElementCancelledPackets:         "Sequence Numbers of Cancelled Packets",
	ElementChargingGateway:          "Charging Gateway Address",
	ElementDataRecord:               "Data Record Packet",
	ElementRequestsResponded:        "Requests Responded",
	ElementRecommendedNode:          "Address of Recommended Node",
	ElementPrivateExtension:         "Private Extension",
}

// fixedLen are the lengths of the values of elements below 128 in versions 0 and 1;
// 0 is an element that the version does not know.
var fixedLen = [128][2]uint8{
	ElementCause:                   {1, 1},
	ElementIMSI:                    {8, 8},
	ElementRAI:                     {6, 6},
	ElementTLLI:                    {4, 4},
	ElementPTMSI:                   {4, 4},
	ElementQoSV0:                   {3, 0},
	ElementReordering:              {1, 1},
	ElementAuthenticationTriplet:   {28, 28},
	ElementMAPCause:                {1, 1},
	ElementPTMSISignature:          {3, 3},
	ElementMSValidated:             {1, 1},
	ElementRecovery:                {1, 1},
	ElementSelectionMode:           {1, 1},
	ElementTEIDData:                {2, 4},
	ElementTEIDControl:             {2, 4},
	ElementTEIDDataII:              {3, 5},
	ElementTeardown:                {1, 1},
	ElementNSAPI:                   {0, 1},
	ElementRANAPCause:              {0, 1},
	ElementRABContext:              {0, 9},
	ElementRadioPrioritySMS:        {0, 1},
	ElementRadioPriority:           {0, 1},
	ElementPacketFlowID:            {0, 2},
	ElementChargingCharacteristics: {0, 2},
	ElementTraceReference:          {0, 2},
	ElementTraceType:               {0, 2},
	ElementMSNotReachable:          {0, 1},
	ElementPacketTransferCommand:   {1, 1},
	ElementChargingID:              {4, 4},
}

// String returns the name of the element.
func (t ElementType) String() string {
	if name := elementNames[t]; name != "" {
		return name
	}
	return "unknown element"
}

// Known reports whether a standard names the type.
func (t ElementType) Known() bool { return elementNames[t] != "" }
