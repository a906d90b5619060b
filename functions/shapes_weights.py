"""Weights of the network in `shapes.py`, written by `train_shapes.py`; not edited by hand."""

WEIGHTS = {
    "first": ("2f`~J#`)S5?@US$=-Br5B*1prW)M+DBr<0?QQ2ZaI4w?e<;v&6EY;0aS}zn9P|w(He;?8y@f}V{5h^*(+zIE{CQ=*i"),
    "second": (
        "{{H^`{Qds@`~Uy|000000Ra>j7ab-bA0{9d92y}gBOoOv009010{{K}{S6Zn79AcH78(r^4i_605*HNz000630sj8|nbrI9r50E3"
        "^aJ|?B>xNqHw#e@U@#OQ;vz~CYd;)E9QpQ6Kq2HpHmc;wK?z3nE^so?&>b-@7*H7`&Phe>7x*0U9Ru^+BcjUzwy5AO3jqWP`1TX_"
        "@dwQmGc^<j{W(1FA#}?;NifL>5o*fv=-2e0^&HJL`5*=8+Q%hkNk#%J-QnW?HS!t%>j4e^rv~Te`VG1K(g6YS4(J*11qNns&~jnP"
        "R3tD55#KN{1Pn|^o|?DVo732#V{dT>7D`+(2WJ}(&O_R!6Ez(83oPa2DbT<C000000000000000000000000000IC1`}+m}008|7"
        "{RIc>000000000000000000000000000031000000000000000<*}Tn+7#Zj#{u#i4ku4bBsdR$6?u6|{xcX)VqQ-U1wkZH4+x;p"
        "3D*6e*dJ?GE(0`QC^Y(UMhFoc@aZk#4(tyK2HX0-RSslL`u-RO^ez$z{0;9M68ron=-4bL6Wl)t=F09&F7ixGU^7rM3Q-DE{Ttld"
        "4ol(nI}zU%^D;CD{6hLFH82b*2oL=JH<+L-DcUX<{{;I4DhVVG`VakHED2Bx&p1X9bZ+YvP}j%{22m*%@hIG~I=|{--X|hP+Cl>-"
        "Y()hyFxWN(^yU%-0s{>7x1ITf&8MEn{`u7L<H_;;&-*7T9}ibwX>2hi2oygx00dB9I#1^)IrI(o&L#x^3pa8U0|Gci_YPa|Pc;q@"
        "5-}zi3h(>m^ta?;0Vz~K|0MSJ=qENJ6dMS4UqDF!w!ThtYA5d#c(B1jC*`c#4$ko^@kl3Y;6WAGxgPa!Km#Z(-QXVL=I#XO@DTw1"
        "(ddW3h_bhyn+WFg>FN9C8eAwqTv{(~88>VOXATQuVDw8hx$D%Z=hzhYsYyT~>_BeB8dob+76S7C4N4T+1Q+$@3H12f%a)^(+K#dl"
        "$_Dl7@e%vx1sfPXB=~avJWnJXZC@fA4^sO+11`z~zOu23u|Q8N^jmgO=k7pLOgL2n(+oz@B>?c~IPvoF#pB<w?ZLR{02ST51M36G"
        "`0Gh3@;_|<WN2y}`0WVxHYyck{X_@N>Z=%{(=`G@;Vw?T><jThBPad-3R&99_d)921@X()0002~{{R300000000000000000002}"
        "{0RgA008#!>Kyjz00000{{R9500000`~U#{0{;L2000342K@m50000000000SRG$G7D4|t7~(oW3qJAr5b*08xCsiq72f|r6V2i{"
        "<3`xqcR>?9G6qRqJ=y&d_(t#oGY>l7D+v@IC;2oPJtZgTL@pmc+L5lnoACm?w#4%N4Eec2BiA7%|NCWCP5vxeR2el=Xk=<|^h3qt"
        "4b0QP0snApE){t*L<2`GKw?rjA1r<G85<4!82|FU"
    ),
    "third": (
        "3i<>57bE*2G7G=I17s!WRUjR+%kmQp79BMYI<o)+L%G;`000000000003gVn(NJZrbY{CG9RngZOEnJ*)!+d`2FzzH-pTa;KxXY8"
        "Bq!e56-DU0AQls`rSN28z<+c0r>3_HWd&Di*%AiuYc~fhLI3~&00000008nX{sGNa0I<^q!Q-YCDhnNd2n`h*4Ez`m{qI0y85hGw"
        "0RZ&V8w}z%>I=ys?<^ci-X{bW000000000002eeN6bbGYAPMrx7eNxF2p~fh-b)3?+88j>9tGM)1hdx8<rNt>DAp1W3ArHRN;K*C"
        "DGI6x`Z)>!^f)WU>dXK^^r-0I!vFvP00000000pd7Y_&*EH7s&06aqIxe@cj2oVhV5)cCY1u_E$5j{sH;vxzd`3)=P?At^a+BN3?"
        "5c<^+000000000004fSN5cDw%^avd>B1R(v78DjmUnVOPBNQe`#UUQ}=hq|p3{*`NC<!*m?qd!s7{L1Y<@C_i|NPVv0tDbA1{(gy"
        "9}EK5$N&HU0RI30001(qOidC|M{GSLAr31dEF$7A1Q!Ml5cB=*;21gKS}OkP7T5eG6%;DT7VFl_4?!neS_wS(0000000000030|0"
        "GZ7b0E%Y8b5_0Lhz{B4BR-i&K@MA3K1Y-|668QV*xcq4V7EU}uXCwPv{WdiL`1Z5@P~{{g8A~Jt1X$oPGffHC_5c6?00000008tq"
        "M?JP<@EPeKQQ!X^GX(Ll00000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000000000000000000000061000000000000000000000RaI2000000000000000000000000000002`~v;}00000"
        "1OEX3`UeLJ0~R9k4F&)L+VCym@dfiM7ycwpAJO#g1Um}r000000000002>z6{_*1X@C_sRM&$Y&1QP8e0PxoD>*VAYA@lji@*wg8"
        "{#Y^U?eaT4@Am20D#ZgQ*d7)-CEmi@=?4q%>=gkU-4G7$8UO$Q00000002iT1``MHD>Me;D?9<#3<WaP0u&1hBO3ts{p~6v{R})C"
        "|M2-5^dWH8!s;Xp_)FaCa2Ves000000000000B2mI9OW>^8E`~;UypT$*ssqWCi<B0kkSgG;mW5R1YSl{Wd!G8(l{Z0YeEtH2Odw"
        "_`g3vb7S&aWhE&?LO~E50cJGXO8@`>00000005uD@A|p*r>@f|KPEFBPAJ#j5gZK={s|5E`3^toOb-Y#*5VdoEF}5n^QPMrQ6k;`"
        "B`OQF000000000006Io18vf!Pxz-LLANl$wKprJXF9z-<J}$*0ITJP`>Fn0Dp!5avK^{c<7E??L_a@#C{H@GUKprCv2=e361pEW#"
        "$1f1(t^fc400000000IbQ5Zf^O*cs_LhwZh;3&}>0RZ|eA^#d31Nr^)HX`~jCG`9O_7@fR6bbYJ`}{pF6f-py00000000000Q&sv"
        "O*Z>PH310(0U;Ir{R{l|0`4Ca>mwHI1pxI{Is7Ow1MK?e4GZft8|?Y~=}<1{KRxsN{O?LL`#CTH0si(rDE%TS0ssI200961000F6"
        "3jY8K_xlL~{poB-?><5S{sasJ022-Y4)X>60_kbl#6<pc=m9+Q>Do6C22J)4B_}rq000000000001rM{7RX8g*81xA^ewPT>fu%^"
        "Nb)8DV7sVd8SzN^2SptD3ok153@>L4sxBcKSLHE71nNjJDgzb^`!vj4)FM#v%?lp@R{#J2000000073|wEN-f=+~F}Cm{dMP~IB_"
        "{0JHZ>;4o4@DEQs*~2d+<*)}T8{p$C_u&Z&_B$E{_e)B?000000000002)v=Pvk=~4(Ti2EA_(yArPPrYEtaBKnT1d4A@8e)D~Ux"
        "?ZHPA0=Qv6+py&BH4@n&Bgot!6g(XA8cOuy7VI}hz5@y>!T<mO00000008}?{Z9_cA|V9e<vkU_3RMrh{s0LI4fhfb_3XG`;O+qu"
        "Cl~WKM+fLC6eH?9+yL}N$tyDe00000000000QcPi`7ht;5X<}B2;cb7D+;~p2SV}BD(ExC7ZnaG<q<Xc<=4Sc9O5Si|MuCt`TsHG"
        "D)8eq78?xw>l!`o7R*Q?Ll*h$ApigX00000002}W8X_mlJ{4#=@j?v_(n~MO0009300IC30{{E~3;_)K0|Ws72mt&8009C30u2BF"
        "{s8j>00000000000O<4V{Qmg&0sQ~-4-feL|K;=m3o`Nq5CQ}S1pg5L{_p?*{s7=M4G9td{`~L64B_Gr5CilC1`+`N1@i&>8{O&?"
        "1>5-M0RR9100000008*;^7ixp{r&^`7WVto_v-)I3<w7t4f+B2_&`V6c<dAZCJrR@<S)YdPs{HPOzl4VCiy$^000000000007wNK"
        "GzBG4Im{va`#dfHtkf#}7UxXB6>SdcG)Cqf8_%`m;yWG`VY1_NZ{SbsD_bGN-BG*=?*v8wG(+&fOFkG+F5IQsy#N3J00000008kY"
        "@ck-4^7{QwI3Zdr9NhjG0SONk`S&Lm{Jc73E8HC^B-iX-Gzu94MxgZe(lulX<xNfA000000000000&fL9SQnXKJz{H09Nb-EJxAO"
        "YGq5k7%0K&N&7EU0FgsAyO}X>_`PaO_RJ9G6)xJJa@>vm8#xmTxj#1NKG;|y%FInsrT_o{00000003qT1|~jDD_$oMGDuD6-EkVe"
        "{|*EO9Tfim{?<hj6e>pP?+f2b)zdf&!!Gs12O0Vs4L#`{000000000004N_E8#pQ~B{um5^~~Z0$kWaV7rzT3A++rY3PT_WMg8{d"
        "3gj-R-AfL)FZ~u1GwdA{7y&mBIs6(AIoA;U3rzzPA4($S6#xJL00000007bFyWP0+-od}yHS;0b3p3gu"
    ),
    "last": (
        "yDA~9EZNy059##}x+fIU_`=jI(hMx#^%erxz0}AR$Nb~0zW6B=^VHkdG6%)~>e4V7)Cc|=G2h<L9`oi100000000000000000000"
        "0rKb!D&Y7H*AWs9GUXiZ;SxsF)f)sUB^&S~CkWsQ$ItHB?eY`ovhM508TiH3;Madg4fM**B^BhX0R}_|{Qeu*;S~=c{R`PHK=cF*"
        "0OG+Yxd|k{*CF2<GRF%d0PFGl{sH2&{|pQE$I=`X00000`vw32_4WV&4e|;6<;EpC67w7e|MbV-3p33u{LBO}(jOVT!z;(_K+63a"
        ">ljAR6(#!vF#z`hDh%fL84@5H<P`kz3fctjI_dxz0=`H4$MO3n;RXcvI?Wyp1{JqK_WJq-CE5}q4<hd96(9ENJlq-Z;S=i@+3^6`"
        "00000000000000000001CGY7S<`VJn_YouZ^Ck26^Z?dCBLpY{3H;<K_7Cy>4c4<qzTO?fS{UUNwF%qx4h*Hs`Undr?g{oe0QTSq"
        "0RPr82LvGlKlUB)007+i0Nfqh`2O%9DjV(#zW3w*009g90tD(o%;D(kFZ~h`00000`}hC=2lxO0BH0@N5+CQ?>H!Vz_%H+U0qHLS"
        "_W&Q|*Z=Jw7bp4)_S4<_1rqBZ{p>8#_Td^3<u4BHIMK=^!Xp;t+a?9tA=TX@5FgpXDc<HAPrwf!(?ba8Lnt9BB_Q`F=QtbM=LaYr"
        "5Dn$q@$l*d*We!s(-`q100000000000000000000{re6C3mxJU^!y4A`UD3vOv$SU8r10Pvko%h)B7CM5GEu!Q1{0;3Gg~N%o<Pd"
        "6(Ydr`2s=}0M$Y&01Lw9Bf07hF9Oui$uJP!(8~Mx05KxbH_+A*+2tnW=rQ==03hq=0QnFaDd`_4>mT#h000007z+RZ5&!@I`}hV5"
        "1QplY5gPaa>d-U^-xVbf4oKj~Mf4UzIL|dC$1M81MZfD5{o&%_!u|Q{($eMA"
    ),
}

SCALES = {
    "first": 0.0036241917,
    "second": 0.0018705676,
    "third": 0.0016020018,
    "last": 0.0019502671,
}

BIASES = {
    "first": [
        0.295871,
        -0.145909,
        0.00664987,
        0.316183,
        0.141506,
        0.0981458,
        0.14178,
        0.0502602,
    ],
    "second": [
        0.0247801,
        0.0589026,
        0.0718096,
        0.108476,
        -0.0235336,
        -0.00208049,
        0.0907756,
        0.0523219,
        -0.0783965,
        0.14386,
        0.00384124,
        -0.00433492,
        -0.00716564,
        -0.000938844,
        0.167137,
        0.0969152,
    ],
    "third": [
        -0.049044,
        0.0398614,
        0.100506,
        -0.0316737,
        -0.0264137,
        0.0459791,
        -0.0410041,
        0.110365,
        0.000893147,
        -0.0670027,
        -0.0297103,
        -0.0410051,
        0.00748071,
        -0.0170016,
        0.0161173,
        -0.0618337,
    ],
    "last": [
        -0.0624836,
        -0.0294515,
        0.0379848,
    ],
}
