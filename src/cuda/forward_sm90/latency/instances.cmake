# forward_sm90_latency's compiled kernels: one for each row of kConfigs,
# type and Cover (config.hpp). instances.cpp makes the list of them a table.
set(small_configs 5)
set(small_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/forward_sm90/latency)
set(small_declarations "")
set(small_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)
math(EXPR small_last_config "${small_configs} - 1")
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE ${small_last_config})
    foreach(INSTANCE_COVER any band whole)
      string(TOLOWER "small_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}_${INSTANCE_COVER}"
        INSTANCE_NAME)
      set(source ${small_generated}/${INSTANCE_NAME}.cu)
      configure_file(forward_sm90/latency/instance.cu.in ${source} @ONLY)
      flashcore_cuda_sources(forward_sm90_latency LISTED GROUP config${INSTANCE_CONFIG} SOURCES ${source})
      if(flashcore_cuda_compiled)
        string(APPEND small_declarations "InstanceEntry ${INSTANCE_NAME}();\n")
        string(APPEND small_entries
          "      {{InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_CONFIG}, Cover::${INSTANCE_COVER}}, ${INSTANCE_NAME}()},\n")
      endif()
    endforeach()
  endforeach()
endforeach()
configure_file(forward_sm90/latency/instance_list.hpp.in ${small_generated}/instance_list.hpp @ONLY)

target_sources(flashcore_objects PRIVATE forward_sm90/latency/instances.cpp)
set_source_files_properties(forward_sm90/latency/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${small_generated})
