"""Everyday words of talk and of coding work: rare by chance in a small store, telling nothing.

Stop words are left out of queries altogether; these count, but little, until a store is large
enough to know for itself how common they are.
"""

EVERYDAY_WORDS = frozenset(
    """
    able absolutely access action actually add added adding agree agreed allow almost already also
    always amazing another answer anything app apply approve approved area around ask asked
    available away awesome back bad based basic bed begin best better big bit body book branch
    break bring bug build built bump busy bye call called came case cause center change changed
    changes check cheers children class clean cleanup clear close code come command comment commit
    common complete config continue cool copy correct could couple course create created current
    daily data date day days deal dear default define delete depend describe detail did different
    directory docs documentation done door down draft drop easy edit else enable end enjoy enough
    ensure error errors even ever every everyone everything exactly example existing exit expect
    experience explain explore extra fact fail failed failing fails fall false family far fast
    favorite feature feel few file files fill final find fine finish first fix fixed fixes fixing
    folder follow food format found free friend friends full fun function functions game gave
    general get give given glad go goal going gone good goodbye got great group guess guy hand
    happen happened happy hard hear heard hello help here hey hi high hit hmm hold home hope hour
    house huge idea image implement implementation implemented import important improve include
    including inside instead interesting issue issues item job join just keep kids kind know known
    large last late later latest learn leave left let level lgtm life light like likely line lines
    link lint list little live load local log long look looking looks lot lots love made main make
    makes making manage many matter maybe mean means meet merge message method mind minor minute
    miss missing mode module money month months morning move much music must name nature need
    needed needs never new next nice night nope normal note nothing now number object off office
    often okay old one only open option options order original other output outside own package
    page park part pass passing path pay people perfect person photo picture ping place plan play
    please point possible post prepare present pretty previous print probably problem proceed
    process program project properly provide pull push put question quick quite raise ran random
    rather reach read ready real really reason recent refactor related release remember remove
    removed removing rename replace reply report request require rerun resolve rest restart result
    retry return returns revert review rework rid right road roger room run running said same saw
    say school script second section see seem seen send sense server set setting settings setup
    share ship short should show showing side sign similar simple simplify since single site size
    skip small something soon sorry sort sound source special spend stand start started stash state
    statement status stay step still stop story string strong stuff style such summarise summarize
    summary super support supported sure sync system tag take taken taking talk task team tell test
    testing tests text thanks thing things think thought thousand three tidy time times today
    together told tomorrow tonight took tool top totally track travel tried true try trying turn
    two type types understand undo unit unused update updated updates updating upgrade use used
    useful user users uses using usual value values variable version very view visit wait walk
    wanna want wanted warning was watch water way week weekend weeks well went whole wip wonder
    wonderful word work worked working works world worry would wow wrap write wrong year years yep
    yes yesterday yet young yup
    """.split()
)
